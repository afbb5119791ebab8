// Timers.
#pragma once

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace millrace {

// Thread-safe. Closures run one after another on the queue's thread and must not block.
class TimerQueue {
 public:
  using Id = int64_t;

  virtual ~TimerQueue() = default;
  virtual Id Schedule(absl::Duration delay, absl::AnyInvocable<void()> closure) = 0;
  // Returns true if the closure was removed and will not run. Returns false if it has run or is running; the call then
  // blocks until it has finished, so that its captures may be destroyed.
  virtual bool Cancel(Id id) = 0;

  // Runs on the machine's clock; the first Schedule starts its thread. Never null, never destroyed.
  static TimerQueue* Real();
};

}  // namespace millrace
