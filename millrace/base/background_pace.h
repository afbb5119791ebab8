// Long work beside the real one: a thread that rests while the rest of its process is busy.
#pragma once

#include "absl/time/time.h"

namespace millrace {

// For one thread, which calls Rest after every few milliseconds of work. As long as other threads of the process use a core for more than a twentieth of
// the time, it gets a tenth of one at most and an eleventh of the time, but rests for no longer than a tenth of a second at once; when they are idle it
// does not rest at all. Cores share caches and memory, so that even work on a core that nobody else wants slows the others down.
class BackgroundPace {
 public:
  BackgroundPace();
  // True when others are busy. It has rested then, unless the last call was less than a millisecond ago: that tells nothing new.
  bool Rest();

 private:
  absl::Duration process_, thread_;  // processor time so far
  absl::Time since_, woke_;
  bool busy_ = false;  // as of the last look
};

}  // namespace millrace
