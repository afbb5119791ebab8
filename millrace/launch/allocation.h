// The nodes that a scheduler has allocated to the script or shell in which `millrace launch` runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "millrace/launch/launcher.h"
#include "millrace/launch/place/standing.h"

namespace millrace::launch {

struct Allocation {
  std::string name;         // "Slurm job 7"
  std::vector<Host> hosts;  // with their slots
  std::string here;         // the host of this process, as the others reach it
  Environment environment;
};

// nullopt outside of an allocation, and within one of its steps (`srun`), where the nodes are already in use. Only
// Slurm's are known. INVALID_ARGUMENT names the variable that is wrong.
StatusOr<std::optional<Allocation>> FindAllocation(const Surroundings& here);

// How keepers on the nodes of the allocation come to a launcher here. `job` is unique.
StatusOr<MeetingLaunch> MeetInAllocation(const Allocation& allocation, const std::string& job);

}  // namespace millrace::launch
