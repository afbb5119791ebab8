// What sessions leave when they end goes back to the system.
#pragma once

#include <memory>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"

namespace millrace {

// A graph is a great many small blocks, which malloc keeps for itself when they are freed: a server that once had a large one would stay
// large. Asking malloc to give pages back takes milliseconds and more, so it happens soon after sessions ended and once for all of
// them, never within a step. Thread-safe.
class FreeMemoryReturn : public std::enable_shared_from_this<FreeMemoryReturn> {
 public:
  // Both outlive the call of Stop.
  static std::shared_ptr<FreeMemoryReturn> Make(TimerQueue* timers, Scheduler* scheduler);

  // Something large may have been freed.
  void Poke();
  void Stop();

 private:
  FreeMemoryReturn(TimerQueue* timers, Scheduler* scheduler) : timers_(timers), scheduler_(scheduler) {}

  TimerQueue* const timers_;
  Scheduler* const scheduler_;
  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  TimerQueue::Id timer_ ABSL_GUARDED_BY(mu_) = 0;  // 0: none is set
};

// Tells malloc to keep what is freed, for the whole process: every step frees tensors and messages of some hundred kilobytes that the next one needs again,
// and pages that go to the system and come back in between cost more than copying them. What sessions leave goes back all the same, as above.
void KeepFreedMemory();

}  // namespace millrace
