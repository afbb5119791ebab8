// Tells the silence of a peer from one's own: a process that was stopped (a suspended job, a paused container, a frozen
// machine) finds all its time-outs passed when it goes on, and no peer has had the time to answer.
#pragma once

#include "millrace/base/clock.h"

namespace millrace {

// Call it when a time-out that was set at `since` goes off. True if that is so late that this process itself did not
// run meanwhile; then it proves nothing about the peer, which must be asked again.
inline bool StoodStill(absl::Time now, absl::Time since, absl::Duration timeout) {
  return now - since > timeout + absl::Milliseconds(500);
}

}  // namespace millrace
