// The jobs of `millrace launch` on this machine.
#pragma once

#include "absl/time/time.h"

namespace millrace {

// Prints what their launchers tell: all, or the one with pid `job` where that is not 0. Returns the exit code: 1 when one did not answer.
int ShowJobs(int job, absl::Duration timeout, bool json);

}  // namespace millrace
