#include "millrace/net/sim/transport.h"

#include <utility>

#include "millrace/base/log.h"
#include "millrace/net/address.h"
#include "millrace/net/sim/call.h"
#include "millrace/net/sim/sim_network.h"
#include "millrace/net/sim/state.h"

namespace millrace::net {
namespace {

using State = std::shared_ptr<SimNetwork::State>;

// The calls of one transport that are not over, by number.
using OwnCalls = std::map<int64_t, RefPtr<SimCall>>;

class SimChannel final : public Channel, public StreamingChannel {
 public:
  SimChannel(std::string address, State state, std::string host, std::shared_ptr<OwnCalls> calls)
      : Channel(std::move(address)), state_(std::move(state)), host_(std::move(host)), calls_(std::move(calls)) {}

  RefPtr<OutgoingCall> Call(const std::string& method, Bytes request, const CallOptions& options, Done done) override {
    return Start(method, std::move(request), options, nullptr, std::move(done));
  }
  StreamingChannel* streaming() override { return state_->streams ? this : nullptr; }
  RefPtr<OutgoingStream> Stream(const std::string& method, Bytes request, const CallOptions& options,
                                MessageHandler on_message, CallDone done) override {
    return Start(method, std::move(request), options, std::move(on_message), std::move(done));
  }

 private:
  // Without `on_message` the call does not stream.
  RefPtr<SimCall> Start(const std::string& method, Bytes request, const CallOptions& options, MessageHandler on_message,
                        Done done) {
    const int64_t id = state_->next_call;
    auto call = MakeRef<SimCall>(state_, host_, address(), method, options.timeout,
                                 [calls = calls_, id, done = std::move(done)](StatusOr<Bytes> result) mutable {
                                   calls->erase(id);
                                   done(std::move(result));
                                 });
    (*calls_)[id] = call;
    if (on_message != nullptr) call->Stream(std::move(on_message));
    call->Start(std::move(request));
    return call;
  }

  const State state_;
  const std::string host_;
  const std::shared_ptr<OwnCalls> calls_;
};

class SimListener final : public Listener {
 public:
  SimListener(State state, std::shared_ptr<SimEndpoint> endpoint, std::string address, int port)
      : state_(std::move(state)), endpoint_(std::move(endpoint)), address_(std::move(address)), port_(port) {}
  ~SimListener() override { Stop(); }
  int port() const override { return port_; }

  void Stop() override {
    if (!endpoint_->stopped) {
      endpoint_->stopped = true;
      state_->endpoints.erase(address_);
      state_->Log(absl::StrCat("stop ", address_));
    }
    if (endpoint_->open.empty()) return;
    state_->loop.Resume(endpoint_->host);  // a host that hangs would never stop
    std::vector<std::shared_ptr<SimServedCall>> open;
    for (const auto& [number, call] : endpoint_->open) open.push_back(call->shared_from_this());
    for (const auto& call : open) call->cancellation()->StartCancel(Cancelled("the server is stopping"));
    open.clear();
    if (!state_->loop.RunUntil([&] { return endpoint_->open.empty(); }, absl::Hours(1))) {
      MR_LOG(Error, "sim: ", endpoint_->open.size(), " calls at ", address_,
             " are not answered although the server is stopping");
      MR_CHECK(endpoint_->open.empty());
    }
  }

 private:
  const State state_;
  const std::shared_ptr<SimEndpoint> endpoint_;
  const std::string address_;
  const int port_;
};

class SimTransport final : public Transport {
 public:
  SimTransport(State state, std::string host) : state_(std::move(state)), host_(std::move(host)) {}
  ~SimTransport() override {
    while (!calls_->empty()) RefPtr<SimCall>(calls_->begin()->second)->Abandon();
  }

  std::shared_ptr<Channel> Connect(const std::string& address) override {
    return std::make_shared<SimChannel>(address, state_, host_, calls_);
  }

  StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Service* service) override {
    MR_ASSIGN_OR_RETURN(HostPort wanted, ParseHostPort(address));
    if (wanted.port == 0) wanted.port = state_->next_port++;
    const std::string name = JoinHostPort(wanted.host, wanted.port);
    if (state_->dead.contains(host_)) return Unavailable("cannot listen at ", name, ": ", host_, " is dead");
    auto endpoint = std::make_shared<SimEndpoint>();
    endpoint->service = service;
    endpoint->host = host_;
    if (!state_->endpoints.emplace(name, endpoint).second) {
      return AlreadyExists("cannot listen at ", name, ": the port is taken");
    }
    state_->hosts[name] = host_;
    state_->Log(absl::StrCat("listen ", name, " on ", host_));
    return std::make_unique<SimListener>(state_, std::move(endpoint), name, wanted.port);
  }

 private:
  const State state_;
  const std::string host_;
  const std::shared_ptr<OwnCalls> calls_ = std::make_shared<OwnCalls>();
};

}  // namespace

std::unique_ptr<Transport> NewSimTransport(std::shared_ptr<SimNetwork::State> state, std::string host) {
  return std::make_unique<SimTransport>(std::move(state), std::move(host));
}

}  // namespace millrace::net
