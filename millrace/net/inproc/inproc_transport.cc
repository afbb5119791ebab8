#include "millrace/net/inproc/inproc_transport.h"

#include <utility>

#include "millrace/net/inproc/call.h"
#include "millrace/net/inproc/endpoint.h"

namespace millrace::net {
namespace {

class InprocChannel final : public Channel, public StreamingChannel {
 public:
  InprocChannel(std::string address, const InprocTransportOptions& options, CallsInFlight* in_flight)
      : Channel(std::move(address)), options_(options), in_flight_(in_flight) {}

  RefPtr<OutgoingCall> Call(const std::string& method, Bytes request, const CallOptions& options, Done done) override {
    auto call = MakeRef<InprocCall>(options_, in_flight_, address(), method, std::move(request), options.timeout,
                                    std::move(done));
    call->Start();
    return call;
  }
  StreamingChannel* streaming() override { return options_.streams ? this : nullptr; }
  RefPtr<OutgoingStream> Stream(const std::string& method, Bytes request, const CallOptions& options,
                                MessageHandler on_message, CallDone done) override {
    auto call = MakeRef<InprocCall>(options_, in_flight_, address(), method, std::move(request), options.timeout,
                                    std::move(done));
    call->Stream(std::move(on_message));
    call->Start();
    return call;
  }

 private:
  const InprocTransportOptions& options_;
  CallsInFlight* const in_flight_;
};

class InprocListener final : public Listener {
 public:
  InprocListener(std::shared_ptr<InprocNetwork> network, std::shared_ptr<InprocEndpoint> endpoint, std::string host,
                 int port)
      : network_(std::move(network)), endpoint_(std::move(endpoint)), address_(JoinHostPort(host, port)), port_(port) {}
  ~InprocListener() override { Stop(); }
  int port() const override { return port_; }
  void Stop() override {
    // Only the first time: the address may belong to another listener by now.
    if (!stopped_.exchange(true)) network_->Remove(address_);
    endpoint_->Stop();
  }

 private:
  const std::shared_ptr<InprocNetwork> network_;
  const std::shared_ptr<InprocEndpoint> endpoint_;
  const std::string address_;
  const int port_;
  std::atomic<bool> stopped_{false};
};

class InprocTransport final : public Transport {
 public:
  explicit InprocTransport(InprocTransportOptions options) : options_(std::move(options)) {
    if (options_.network == nullptr) options_.network = NewInprocNetwork();
  }
  ~InprocTransport() override { in_flight_.CancelAllAndWait(); }

  std::shared_ptr<Channel> Connect(const std::string& address) override {
    return std::make_shared<InprocChannel>(address, options_, &in_flight_);
  }

  StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Service* service) override {
    MR_ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(address));
    auto endpoint = std::make_shared<InprocEndpoint>(service);
    MR_ASSIGN_OR_RETURN(const int port, options_.network->Add(wanted, endpoint));
    return std::make_unique<InprocListener>(options_.network, std::move(endpoint), wanted.host, port);
  }

 private:
  InprocTransportOptions options_;
  CallsInFlight in_flight_;
};

}  // namespace

std::unique_ptr<Transport> NewInprocTransport(InprocTransportOptions options) {
  return std::make_unique<InprocTransport>(std::move(options));
}

}  // namespace millrace::net
