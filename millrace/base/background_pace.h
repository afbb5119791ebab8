// Throttling for background work: a thread that backs off while the rest of its process is busy.
#pragma once

#include "absl/time/time.h"
#include "millrace/base/clock.h"

namespace millrace {

// Used by a single thread, which calls Rest after every few milliseconds of work. While the other threads of the
// process together use more than 5 % of a core, this one is limited to 10 % of a core and to one eleventh of the
// elapsed time; a single sleep lasts at most 100 ms. While they are idle it never sleeps. Even work on an otherwise
// idle core slows the others down, because cores share caches and memory bandwidth.
//
// Work that takes long is wanted in the end: the share doubles every 30 s, and after two minutes there is no limit.
class BackgroundPace {
 public:
  static constexpr absl::Duration kDoubles = absl::Seconds(30);
  static constexpr int kMaxDoublings = 4;

  explicit BackgroundPace(Clock* clock = Clock::Real());
  // Returns true if other threads are busy, after sleeping. A call within a millisecond of the previous one does not
  // sleep and repeats the previous answer.
  bool Rest();

 private:
  void Measure();

  Clock* const clock_;
  const absl::Time begun_;
  absl::Duration process_, thread_;  // processor time so far
  absl::Time since_, woke_;
  bool busy_ = false;  // as of the last measurement
};

}  // namespace millrace
