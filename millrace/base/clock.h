// Clocks are injected: nothing outside base/ asks the operating system for the time. tests/layering checks it.
#pragma once

#include "absl/time/time.h"
#include "millrace/base/mutex.h"

namespace millrace {

// Measures durations: for deadlines, intervals, ages and traces. It is steady: it advances with the time that passes,
// whatever is done to the machine's time of day. Thread-safe.
//
// The real one starts at the time of day at which the process first asked, so that a status report or a trace can be
// read; it does not follow later corrections, so its times mean nothing to another process or in a file.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;

  // Never null, never destroyed.
  static Clock* Real();
};

// The time of day, for time stamps in files and logs, and for nothing else: it may be set to any time at any moment,
// ahead or back. Thread-safe.
class WallClock {
 public:
  virtual ~WallClock() = default;
  virtual absl::Time Now() = 0;

  // The machine's time of day; never null, never destroyed.
  static WallClock* Real();
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

// The time of day of a test, which sets it as an administrator would.
class VirtualWallClock : public WallClock {
 public:
  explicit VirtualWallClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}
  absl::Time Now() override;
  void Set(absl::Time now);
  void Advance(absl::Duration by) { Set(Now() + by); }

 private:
  Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
