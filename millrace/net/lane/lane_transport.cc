#include "millrace/net/lane/lane_transport.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "millrace/base/affinity.h"
#include "millrace/base/log.h"
#include "millrace/net/lane/core.h"
#include "millrace/net/lane/endpoint.h"
#include "millrace/net/lane/lane_channel.h"
#include "millrace/net/lane/server_link.h"

namespace millrace::net {
namespace {

// A listener's service with one additional method, which makes offers.
class OfferingService final : public Service {
 public:
  OfferingService(Service* service, RefPtr<LaneEndpoint> endpoint)
      : service_(service), endpoint_(std::move(endpoint)), methods_(service->methods()) {
    methods_.emplace_back(kOfferMethod);
  }
  const std::vector<std::string>& methods() const override { return methods_; }
  void OnCall(int method, std::shared_ptr<IncomingCall> call) override {
    if (method + 1 < static_cast<int>(methods_.size())) return service_->OnCall(method, std::move(call));
    LaneOfferRequest request;
    if (Status parsed = Parse(call->request(), &request); !parsed.ok()) return call->Reply(parsed);
    call->Reply(Serialize(endpoint_->MakeOffer({call->peer(), call->from_client()}, request)));
  }

 private:
  Service* const service_;
  const RefPtr<LaneEndpoint> endpoint_;
  std::vector<std::string> methods_;
};

// The endpoints that are open, for the transport's status.
struct Endpoints {
  Mutex mu;
  absl::flat_hash_set<LaneEndpoint*> open ABSL_GUARDED_BY(mu);
};

class LaneListener final : public Listener {
 public:
  LaneListener(Endpoints* endpoints, RefPtr<LaneEndpoint> endpoint, std::unique_ptr<OfferingService> service,
               std::unique_ptr<Listener> setup)
      : endpoints_(endpoints), endpoint_(std::move(endpoint)), service_(std::move(service)), setup_(std::move(setup)) {
    MutexLock lock(&endpoints_->mu);
    endpoints_->open.insert(endpoint_.get());
  }
  ~LaneListener() override { Stop(); }
  int port() const override { return setup_->port(); }
  void Stop() override {
    {
      MutexLock lock(&endpoints_->mu);
      endpoints_->open.erase(endpoint_.get());
    }
    endpoint_->BeginStop();
    setup_->Stop();
    endpoint_->FinishStop();
  }

 private:
  Endpoints* const endpoints_;
  const RefPtr<LaneEndpoint> endpoint_;
  const std::unique_ptr<OfferingService> service_;
  const std::unique_ptr<Listener> setup_;
};

class LaneTransport final : public Transport {
 public:
  LaneTransport(std::unique_ptr<Transport> setup, std::unique_ptr<LaneCore> core)
      : core_(std::move(core)), setup_(std::move(setup)), dialers_(new ThreadGroup("lane-dial")) {}

  ~LaneTransport() override {
    const uint64_t one = 1;
    if (write(core_->closing.get(), &one, sizeof(one)) < 0) MR_LOG(Error, "eventfd: ", std::strerror(errno));
    core_->calls.CancelAllAndWait();
    for (const auto& channel : Channels()) channel->Close();
    // Pending requests for offers end here, and no handshake begins afterwards.
    setup_.reset();
    dialers_.reset();
    for (const auto& channel : Channels()) channel->Close();
  }

  std::shared_ptr<Channel> Connect(const std::string& address) override {
    MutexLock lock(&mu_);
    std::weak_ptr<LaneChannel>& known = channels_[address];
    std::shared_ptr<LaneChannel> channel = known.lock();
    if (channel == nullptr) {
      channel = std::make_shared<LaneChannel>(core_.get(), dialers_.get(), setup_->Connect(address));
      known = channel;
      absl::erase_if(channels_, [](const auto& entry) { return entry.second.expired(); });
    }
    return channel;
  }

  StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Service* service) override {
    MR_ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(address));
    RefPtr<LaneEndpoint> endpoint = LaneEndpoint::Open(core_.get(), wanted, service);
    auto offering = std::make_unique<OfferingService>(service, endpoint);
    StatusOr<std::unique_ptr<Listener>> listener = setup_->Listen(address, offering.get());
    if (!listener.ok()) {
      endpoint->BeginStop();
      endpoint->FinishStop();
      return listener.status();
    }
    return std::make_unique<LaneListener>(&endpoints_, std::move(endpoint), std::move(offering), *std::move(listener));
  }

  TransportStatus status() override {
    TransportStatus status = setup_->status();
    core_->admission.AddTo(&status);
    for (const auto& channel : Channels()) status.peers.push_back(channel->status());
    std::vector<RefPtr<LaneEndpoint>> endpoints;
    {
      MutexLock lock(&endpoints_.mu);
      for (LaneEndpoint* endpoint : endpoints_.open) endpoints.push_back(ShareRef(endpoint));
    }
    for (const auto& endpoint : endpoints) {
      for (const auto& link : endpoint->links()) {
        PeerStatus peer{.peer = link->peer(), .kind = link->kind(), .why_not_better = link->why_not_better()};
        if (peer.kind.empty()) continue;  // no peer yet
        peer.bytes_sent = link->counters()->bytes_sent.load(std::memory_order_relaxed);
        peer.bytes_received = link->counters()->bytes_received.load(std::memory_order_relaxed);
        peer.calls = link->counters()->calls.load(std::memory_order_relaxed);
        status.peers.push_back(std::move(peer));
      }
    }
    std::sort(status.peers.begin(), status.peers.end(),
              [](const PeerStatus& a, const PeerStatus& b) { return a.peer < b.peer; });
    status.refused_connections += core_->refused.load();
    status.received_blocks = core_->pool->in_use();
    return status;
  }

 private:
  std::vector<std::shared_ptr<LaneChannel>> Channels() {
    std::vector<std::shared_ptr<LaneChannel>> channels;
    MutexLock lock(&mu_);
    for (const auto& [address, weak] : channels_) {
      if (auto channel = weak.lock()) channels.push_back(std::move(channel));
    }
    return channels;
  }

  const std::unique_ptr<LaneCore> core_;  // its threads end last
  std::unique_ptr<Transport> setup_;
  std::unique_ptr<ThreadGroup> dialers_;
  Endpoints endpoints_;
  Mutex mu_;
  absl::flat_hash_map<std::string, std::weak_ptr<LaneChannel>> channels_ ABSL_GUARDED_BY(mu_);
};

constexpr std::pair<LaneKind, absl::string_view> kKinds[] = {
    {LaneKind::kAuto, "auto"}, {LaneKind::kShm, "shm"}, {LaneKind::kTcp, "tcp"}, {LaneKind::kGrpc, "grpc"}};

}  // namespace

StatusOr<LaneKind> ParseLaneKind(absl::string_view text) {
  for (const auto& [kind, name] : kKinds) {
    if (absl::AsciiStrToLower(text) == name) return kind;
  }
  std::vector<absl::string_view> names;
  for (const auto& [kind, name] : kKinds) names.push_back(name);
  const absl::string_view last = names.back();
  names.pop_back();
  return InvalidArgument("\"", text, "\" is not a transport; use ", absl::StrJoin(names, ", "), " or ", last);
}

absl::string_view LaneKindName(LaneKind kind) {
  for (const auto& [known, name] : kKinds) {
    if (known == kind) return name;
  }
  return "";
}

std::unique_ptr<Transport> NewLaneTransport(std::unique_ptr<Transport> setup, LaneOptions options) {
  if (options.kind == LaneKind::kGrpc) return setup;
  const int threads = options.threads > 0 ? options.threads : AllowedCoreCount() + 2;
  StatusOr<std::unique_ptr<EventLoop>> loop =
      EventLoop::Start("lane", threads, std::max(threads, options.max_threads), options.timers);
  Fd closing(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop.ok() || !closing.ok()) {
    MR_LOG(Warning,
           "no step lanes, everything goes over gRPC: ", loop.ok() ? "no file descriptors" : loop.status().message());
    return setup;
  }
  return std::make_unique<LaneTransport>(std::move(setup),
                                         std::make_unique<LaneCore>(options, *std::move(loop), std::move(closing)));
}

}  // namespace millrace::net
