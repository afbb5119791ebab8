// Throttling for background work: a thread that backs off while the rest of its process is busy.
#pragma once

#include "absl/time/time.h"

namespace millrace {

// Used by a single thread, which calls Rest after every few milliseconds of work. While the other threads of the
// process together use more than 5 % of a core, this one is limited to 10 % of a core and to one eleventh of the
// elapsed time; a single sleep lasts at most 100 ms. While they are idle it never sleeps. Even work on an otherwise
// idle core slows the others down, because cores share caches and memory bandwidth.
class BackgroundPace {
 public:
  BackgroundPace();
  // Returns true if other threads are busy, after sleeping. A call within a millisecond of the previous one does not
  // sleep and repeats the previous answer.
  bool Rest();

 private:
  absl::Duration process_, thread_;  // processor time so far
  absl::Time since_, woke_;
  bool busy_ = false;  // as of the last measurement
};

}  // namespace millrace
