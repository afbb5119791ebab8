// `millrace task-keeper`, which a launcher starts for each task, on this host or another one.
#pragma once

#include <string>
#include <vector>

namespace millrace {

// `arguments` are `--tasks NUMBERS` in a step of Slurm's (launch/step_keeper.h); else, each optional, the silence in
// seconds after which the launcher is given up, and the claim (launch/keeper.h). Returns the exit code.
int RunTaskKeeper(const std::vector<std::string>& arguments);

}  // namespace millrace
