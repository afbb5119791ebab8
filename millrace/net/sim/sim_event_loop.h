// An event loop on virtual time, with an order of events determined by a seed.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"

namespace millrace::net {

// Used by one thread. The seed determines the order of events that are due at the same time.
class SimEventLoop {
 public:
  using EventId = int64_t;

  explicit SimEventLoop(uint64_t seed);
  ~SimEventLoop();

  // `host` is where the event happens; the event waits while that host hangs. Empty if it belongs to no host.
  EventId At(absl::Time time, const std::string& host, absl::AnyInvocable<void()> run);
  EventId After(absl::Duration delay, const std::string& host, absl::AnyInvocable<void()> run) {
    return At(now() + delay, host, std::move(run));
  }
  // Drops all pending events, and all events added from now on.
  void Close();
  // Returns true if the event was still pending.
  bool Remove(EventId id);

  // Runs events until the condition holds. Returns false if it does not within `limit`, or if no events are left.
  bool RunUntil(absl::FunctionRef<bool()> condition, absl::Duration limit);

  void Hang(const std::string& host) { parked_[host]; }
  // Events that came due meanwhile are due now.
  void Resume(const std::string& host);
  bool hangs(const std::string& host) const { return parked_.contains(host); }

  absl::Time now() { return clock_.Now(); }
  // Live as long as the loop. A host's clock and timers show its own time.
  Clock* clock(const std::string& host);
  void SetClock(const std::string& host, double rate, absl::Duration jump);
  // What the host's clock will show at this moment.
  absl::Time OnClockOf(const std::string& host, absl::Time moment);
  TimerQueue* timers(const std::string& host);
  Scheduler* scheduler(const std::string& host);

  // A number in [0, 1), determined by the seed.
  double Random() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }

 private:
  using Order = std::tuple<absl::Time, uint64_t, EventId>;  // the second breaks ties
  struct Event {
    std::string host;
    absl::AnyInvocable<void()> run;
  };
  class HostClock;
  class HostTimers;
  class HostScheduler;

  VirtualClock clock_;
  std::mt19937_64 random_;
  bool closed_ = false;
  EventId next_id_ = 1;
  std::map<Order, Event> events_;
  std::map<EventId, Order> orders_;
  std::map<std::string, std::vector<std::pair<EventId, Event>>> parked_;  // by host that hangs
  HostClock* ClockOf(const std::string& host);

  std::map<std::string, std::unique_ptr<HostClock>> clocks_;
  std::map<std::string, std::unique_ptr<TimerQueue>> timers_;
  std::map<std::string, std::unique_ptr<Scheduler>> schedulers_;
};

}  // namespace millrace::net
