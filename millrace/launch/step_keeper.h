// A keeper in a step that a launcher started within its allocation (scheduler_step.h).
#pragma once

#include <string>

namespace millrace::launch {

// `tasks`: "0,1,2", the tasks of the step; this process's is the one at its rank. Goes to the launcher's meeting and
// runs the keeper there; returns the exit code for the process.
int RunStepKeeper(const std::string& tasks);

}  // namespace millrace::launch
