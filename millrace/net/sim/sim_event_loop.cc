#include "millrace/net/sim/sim_event_loop.h"

#include <algorithm>
#include <utility>

namespace millrace::net {

// Runs at `rate`, in true time, since it was last set.
class SimEventLoop::HostClock final : public Clock {
 public:
  explicit HostClock(Clock* true_time) : true_time_(true_time), set_at_(true_time->Now()), local_(set_at_) {}
  absl::Time Now() override { return At(true_time_->Now()); }
  absl::Time At(absl::Time moment) const { return local_ + (moment - set_at_) * rate_; }
  void Set(double rate, absl::Duration jump) {
    local_ = Now() + jump;
    set_at_ = true_time_->Now();
    rate_ = rate;
  }
  double rate() const { return rate_; }

 private:
  Clock* const true_time_;
  absl::Time set_at_, local_;
  double rate_ = 1;
};

class SimEventLoop::HostTimers final : public TimerQueue {
 public:
  HostTimers(SimEventLoop* loop, std::string host) : loop_(loop), host_(std::move(host)) {}
  Id Schedule(absl::Duration delay, absl::AnyInvocable<void()> closure) override {
    return loop_->After(std::max(delay, absl::ZeroDuration()) / loop_->ClockOf(host_)->rate(), host_,
                        std::move(closure));
  }
  bool Cancel(Id id) override { return loop_->Remove(id); }

 private:
  SimEventLoop* const loop_;
  const std::string host_;
};

class SimEventLoop::HostScheduler final : public Scheduler {
 public:
  HostScheduler(SimEventLoop* loop, std::string host) : loop_(loop), host_(std::move(host)) {}
  void Schedule(absl::AnyInvocable<void()> closure) override { loop_->At(loop_->now(), host_, std::move(closure)); }
  int num_threads() const override { return 1; }

 private:
  SimEventLoop* const loop_;
  const std::string host_;
};

SimEventLoop::SimEventLoop(uint64_t seed) : random_(seed) {}
SimEventLoop::~SimEventLoop() = default;

SimEventLoop::HostClock* SimEventLoop::ClockOf(const std::string& host) {
  auto& clock = clocks_[host];
  if (clock == nullptr) clock = std::make_unique<HostClock>(&clock_);
  return clock.get();
}

Clock* SimEventLoop::clock(const std::string& host) { return ClockOf(host); }
void SimEventLoop::SetClock(const std::string& host, double rate, absl::Duration jump) {
  ClockOf(host)->Set(rate, jump);
}

absl::Time SimEventLoop::OnClockOf(const std::string& host, absl::Time moment) { return ClockOf(host)->At(moment); }

SimEventLoop::EventId SimEventLoop::At(absl::Time time, const std::string& host, absl::AnyInvocable<void()> run) {
  const EventId id = next_id_++;
  if (closed_) return id;
  const Order order(std::max(time, now()), random_(), id);
  orders_[id] = order;
  events_.emplace(order, Event{host, std::move(run)});
  return id;
}

void SimEventLoop::Close() {
  closed_ = true;
  orders_.clear();
  const auto events = std::move(events_);
  const auto parked = std::move(parked_);
}

bool SimEventLoop::Remove(EventId id) {
  Event removed;  // destroyed when the queues are in order again
  if (const auto it = orders_.find(id); it != orders_.end()) {
    const auto event = events_.find(it->second);
    removed = std::move(event->second);
    events_.erase(event);
    orders_.erase(it);
    return true;
  }
  for (auto& [host, parked] : parked_) {
    const auto it = std::find_if(parked.begin(), parked.end(), [&](const auto& entry) { return entry.first == id; });
    if (it == parked.end()) continue;
    removed = std::move(it->second);
    parked.erase(it);
    return true;
  }
  return false;
}

bool SimEventLoop::RunUntil(absl::FunctionRef<bool()> condition, absl::Duration limit) {
  const absl::Time end = now() + limit;
  while (!condition()) {
    if (events_.empty()) return false;
    const auto first = events_.begin();
    const absl::Time time = std::get<0>(first->first);
    if (time > end) {
      clock_.Advance(end - now());
      return false;
    }
    clock_.Advance(time - now());
    const EventId id = std::get<2>(first->first);
    Event event = std::move(first->second);
    events_.erase(first);
    orders_.erase(id);
    if (const auto parked = parked_.find(event.host); parked != parked_.end()) {
      parked->second.emplace_back(id, std::move(event));
      continue;
    }
    event.run();
  }
  return true;
}

void SimEventLoop::Resume(const std::string& host) {
  const auto it = parked_.find(host);
  if (it == parked_.end()) return;
  auto events = std::move(it->second);
  parked_.erase(it);
  for (auto& [id, event] : events) {
    const Order order(now(), random_(), id);
    orders_[id] = order;
    events_.emplace(order, std::move(event));
  }
}

TimerQueue* SimEventLoop::timers(const std::string& host) {
  auto& timers = timers_[host];
  if (timers == nullptr) timers = std::make_unique<HostTimers>(this, host);
  return timers.get();
}

Scheduler* SimEventLoop::scheduler(const std::string& host) {
  auto& scheduler = schedulers_[host];
  if (scheduler == nullptr) scheduler = std::make_unique<HostScheduler>(this, host);
  return scheduler.get();
}

}  // namespace millrace::net
