// The jobs of `millrace launch` on this machine.
#pragma once

#include "absl/time/time.h"

namespace millrace {

// Prints the reports of all launchers, or only of the one with pid `job` if that is not 0. Returns the exit code: 1 if
// one did not answer.
int ShowJobs(int job, absl::Duration timeout, bool json);

}  // namespace millrace
