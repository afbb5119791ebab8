// Closures that run later.
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
  // True when the closure was removed and will not run. False when it runs or ran: the call then
  // returns after it finished, so its captures may be destroyed.
  virtual bool Cancel(Id id) = 0;

  // On the machine's clock; its thread starts with the first timer. Never null, lives for ever.
  static TimerQueue* Real();
};

}  // namespace millrace
