#include "millrace/net/grpc/grpc_transport.h"

#include <atomic>
#include <utility>
#include <vector>

#include "millrace/base/stop_gate.h"
#include "millrace/base/timer.h"
#include "millrace/net/admission.h"
#include "millrace/net/grpc/channel.h"
#include "millrace/net/grpc/channel_args.h"
#include "millrace/net/grpc/listener.h"

namespace millrace::net {
namespace {

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options)
      : options_(std::move(options)),
        queue_(options_.max_threads),
        context_{.tls = options_.tls, .queue = &queue_, .in_flight = &in_flight_, .poke = [this] { Poke(); }} {}

  ~GrpcTransport() override {
    TimerQueue::Id timer = 0;
    {
      MutexLock lock(&timer_mu_);
      stopping_ = true;
      timer = std::exchange(timer_, 0);
    }
    if (timer != 0) TimerQueue::Real()->Cancel(timer);
    // An earlier timer may still run.
    ticks_->Stop();
    ticks_->Wait();
    in_flight_.CancelAllAndWait();
  }

  std::shared_ptr<Channel> Connect(const std::string& address) override {
    MutexLock lock(&mu_);
    std::weak_ptr<GrpcChannel>& known = channels_[address];
    std::shared_ptr<GrpcChannel> channel = known.lock();
    if (channel == nullptr) {
      channel = std::make_shared<GrpcChannel>(address, &context_);
      known = channel;
      absl::erase_if(channels_, [](const auto& entry) { return entry.second.expired(); });
    }
    return channel;
  }

  StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Service* service) override {
    return GrpcListener::Start(address, options_, &queue_, &admission_, service);
  }

  TransportStatus status() override {
    TransportStatus status;
    admission_.AddTo(&status);
    return status;
  }

 private:
  // Called for every call.
  void Poke() {
    if (!ticking_.load(std::memory_order_relaxed) && !ticking_.exchange(true)) Schedule();
  }
  void Schedule() {
    MutexLock lock(&timer_mu_);
    if (!stopping_)
      timer_ = TimerQueue::Real()->Schedule(options_.silence_check, [this, ticks = ticks_] {
        if (!ticks->Enter()) return;  // the transport may be gone
        Tick();
        ticks->Leave();
      });
  }
  void Tick() {
    ticking_.store(false);  // before looking: a call that is made from now on pokes again
    bool more = false;
    for (const auto& channel : Channels()) more |= channel->Tick();
    if (more) Poke();
  }

  std::vector<std::shared_ptr<GrpcChannel>> Channels() {
    std::vector<std::shared_ptr<GrpcChannel>> channels;
    MutexLock lock(&mu_);
    for (const auto& [address, weak] : channels_) {
      if (auto channel = weak.lock()) channels.push_back(std::move(channel));
    }
    return channels;
  }

  const GrpcTransportOptions options_;
  CompletionQueue queue_;
  CallsInFlight in_flight_;
  Admission admission_{{.what = "gRPC", .handshake_timeout = kGrpcHandshakeTimeout}};
  const GrpcChannelContext context_;
  std::atomic<bool> ticking_{false};
  const std::shared_ptr<StopGate> ticks_ = std::make_shared<StopGate>();  // those that run
  Mutex timer_mu_;
  TimerQueue::Id timer_ ABSL_GUARDED_BY(timer_mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(timer_mu_) = false;
  Mutex mu_;
  absl::flat_hash_map<std::string, std::weak_ptr<GrpcChannel>> channels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Transport> NewGrpcTransport(GrpcTransportOptions options) {
  return std::make_unique<GrpcTransport>(std::move(options));
}

}  // namespace millrace::net
