// Returns memory to the system after sessions have ended.
#pragma once

#include <memory>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"

namespace millrace {

// A graph consists of many small blocks, which malloc keeps when they are freed, so a server that once had a large
// graph would stay large. Making malloc return its pages takes milliseconds or more, so it is done a while after
// sessions have ended, once for all of them, and never within a step. Thread-safe.
class FreeMemoryReturn : public std::enable_shared_from_this<FreeMemoryReturn> {
 public:
  // Both must live until Stop has returned.
  static std::shared_ptr<FreeMemoryReturn> Make(TimerQueue* timers, Scheduler* scheduler);

  // Call it when something large may have been freed.
  void Poke();
  void Stop();

 private:
  FreeMemoryReturn(TimerQueue* timers, Scheduler* scheduler) : timers_(timers), scheduler_(scheduler) {}

  TimerQueue* const timers_;
  Scheduler* const scheduler_;
  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  TimerQueue::Id timer_ ABSL_GUARDED_BY(mu_) = 0;  // 0: no timer is set
};

// Makes malloc keep freed memory, for the whole process. Every step frees tensors and messages of some hundred
// kilobytes that the next step needs again, and returning their pages to the system in between would cost more than
// copying them. FreeMemoryReturn still returns what sessions leave behind.
void KeepFreedMemory();

}  // namespace millrace
