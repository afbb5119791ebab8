#include "millrace/cluster/client/watched_channel.h"

#include <atomic>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

constexpr char kProbe[] = "/tensorflow.WorkerService/GetStatus";
// The number of pings within the timeout.
constexpr int kTicks = 5;

// A call that ends once, through its answer or through the watch.
class WatchedCall : public net::OutgoingCall {
 public:
  WatchedCall(int64_t number, const std::string& method, net::Channel::Done done)
      : number_(number), method_(method), done_(std::move(done)) {}

  int64_t number() const { return number_; }
  const std::string& method() const { return method_; }

  void Cancel() override {
    RefPtr<net::OutgoingCall> inner;
    {
      MutexLock lock(&mu_);
      cancelled_ = true;
      inner = inner_;
    }
    if (inner) inner->Cancel();
  }

  // The underlying call has been started.
  void Began(RefPtr<net::OutgoingCall> inner) {
    {
      MutexLock lock(&mu_);
      if (done_) inner_ = inner;
      if (done_ && !cancelled_) return;
    }
    // The call has ended already, or was cancelled before it was started.
    if (inner) inner->Cancel();
  }

  // Only the first End has an effect. Returns the underlying call, which may still be in flight.
  RefPtr<net::OutgoingCall> End(StatusOr<net::Bytes> answer) {
    net::Channel::Done done;
    RefPtr<net::OutgoingCall> inner;
    {
      MutexLock lock(&mu_);
      done = std::exchange(done_, nullptr);
      inner = std::move(inner_);
    }
    if (done) done(std::move(answer));
    return inner;
  }

 private:
  const int64_t number_;
  const std::string method_;
  Mutex mu_;
  net::Channel::Done done_ ABSL_GUARDED_BY(mu_);
  RefPtr<net::OutgoingCall> inner_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

std::string FormatSeconds(absl::Duration d) { return absl::StrCat(absl::ToDoubleSeconds(d), " s"); }

// True if the error must have come from the peer itself.
bool IsAnswer(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return false;
    default:
      return true;
  }
}

class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(std::shared_ptr<net::Channel> channel, const WatchOptions& options)
      : channel_(std::move(channel)), options_(options) {}

  RefPtr<net::OutgoingCall> Call(const std::string& method, net::Bytes request, const net::CallOptions& options,
                                 net::Channel::Done done) {
    auto call = MakeRef<WatchedCall>(next_number_.fetch_add(1, std::memory_order_relaxed), method, std::move(done));
    Add(call);
    call->Began(channel_->Call(method, std::move(request), options,
                               [self = shared_from_this(), call](StatusOr<net::Bytes> answer) {
                                 self->Ended(call.get(), IsAnswer(answer.status()));
                                 call->End(std::move(answer));
                               }));
    return call;
  }

 private:
  void Add(const RefPtr<WatchedCall>& call) {
    {
      MutexLock lock(&mu_);
      if (calls_.empty()) silent_ = 0;
      calls_.emplace(call->number(), call);
      if (ticking_) return;
      ticking_ = true;
      silent_ = 1;  // so that the first tick counts fully
    }
    ScheduleTick();
  }

  void Ended(WatchedCall* call, bool answered) {
    RefPtr<WatchedCall> dropped;
    MutexLock lock(&mu_);
    if (answered) silent_ = 0;
    if (auto it = calls_.find(call->number()); it != calls_.end()) {
      dropped = std::move(it->second);
      calls_.erase(it);
    }
  }

  void ScheduleTick() {
    options_.timers->Schedule(options_.peer_timeout / kTicks, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Tick();
    });
  }

  void Tick() {
    std::vector<RefPtr<WatchedCall>> lost;
    {
      MutexLock lock(&mu_);
      if (calls_.empty()) {
        ticking_ = false;
        return;
      }
      if (++silent_ > kTicks) {
        ticking_ = false;
        for (auto& [number, call] : calls_) lost.push_back(std::move(call));
        calls_.clear();
      }
    }
    if (!lost.empty()) return Lose(lost);
    ScheduleTick();
    channel_->Call(kProbe, net::Bytes(), {.timeout = options_.peer_timeout},
                   [self = shared_from_this()](StatusOr<net::Bytes> answer) {
                     MutexLock lock(&self->mu_);
                     if (IsAnswer(answer.status())) self->silent_ = 0;
                   });
  }

  void Lose(const std::vector<RefPtr<WatchedCall>>& calls) {
    for (const auto& call : calls) {
      // Ended before it is cancelled, so that the caller sees this error.
      auto beneath =
          call->End(Unavailable("the server at ", channel_->address(), " has not answered for ",
                                FormatSeconds(options_.peer_timeout), "; ", call->method(), " was waiting for it"));
      if (beneath) beneath->Cancel();
    }
  }

  const std::shared_ptr<net::Channel> channel_;
  const WatchOptions options_;
  Mutex mu_;
  std::atomic<int64_t> next_number_{1};
  absl::btree_map<int64_t, RefPtr<WatchedCall>> calls_ ABSL_GUARDED_BY(mu_);  // in the order of their start
  bool ticking_ ABSL_GUARDED_BY(mu_) = false;
  int silent_ ABSL_GUARDED_BY(mu_) = 0;  // ticks since the peer last answered or was first expected to
};

class WatchedChannel : public net::Channel {
 public:
  WatchedChannel(std::shared_ptr<net::Channel> channel, const WatchOptions& options)
      : Channel(channel->address()), watch_(std::make_shared<Watch>(std::move(channel), options)) {}
  RefPtr<net::OutgoingCall> Call(const std::string& method, net::Bytes request, const net::CallOptions& options,
                                 Done done) override {
    return watch_->Call(method, std::move(request), options, std::move(done));
  }

 private:
  const std::shared_ptr<Watch> watch_;
};

}  // namespace

std::shared_ptr<net::Channel> WatchChannel(std::shared_ptr<net::Channel> channel, const WatchOptions& options) {
  if (options.peer_timeout == absl::InfiniteDuration()) return channel;
  return std::make_shared<WatchedChannel>(std::move(channel), options);
}

}  // namespace millrace
