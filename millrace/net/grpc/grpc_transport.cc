#include "millrace/net/grpc/grpc_transport.h"

#include <utility>

#include "millrace/net/grpc/channel.h"
#include "millrace/net/grpc/listener.h"

namespace millrace::net {
namespace {

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options) : options_(std::move(options)), queue_(options_.max_threads) {}
  ~GrpcTransport() override { in_flight_.CancelAllAndWait(); }

  std::shared_ptr<Channel> Connect(const std::string& address) override {
    MutexLock lock(&mu_);
    std::weak_ptr<GrpcChannel>& known = channels_[address];
    std::shared_ptr<GrpcChannel> channel = known.lock();
    if (channel == nullptr) {
      channel = std::make_shared<GrpcChannel>(address, options_.tls, &queue_, &in_flight_);
      known = channel;
      absl::erase_if(channels_, [](const auto& entry) { return entry.second.expired(); });
    }
    return channel;
  }

  StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Service* service) override {
    return GrpcListener::Start(address, options_.tls.get(), &queue_, service);
  }

 private:
  const GrpcTransportOptions options_;
  CompletionQueue queue_;
  CallsInFlight in_flight_;
  Mutex mu_;
  absl::flat_hash_map<std::string, std::weak_ptr<GrpcChannel>> channels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Transport> NewGrpcTransport(GrpcTransportOptions options) {
  return std::make_unique<GrpcTransport>(std::move(options));
}

}  // namespace millrace::net
