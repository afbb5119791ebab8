// Clocks are injected: nothing outside base/ asks the operating system for the time.
#pragma once

#include "absl/time/time.h"
#include "millrace/base/mutex.h"

namespace millrace {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;

  // The machine's clock; never null, never destroyed.
  static Clock* Real();
};

// Moves only when Advance is called. For tests.
class VirtualClock : public Clock {
 public:
  explicit VirtualClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}
  absl::Time Now() override;
  void Advance(absl::Duration by);

 private:
  Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
