// Divides the cores of the machines among the workers of a job (`--bind_workers`).
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"

namespace millrace::launch {

// Sorts `cores` by topology: by socket, with the hyper-threads of a core next to each other. The topology is read from
// `system`; a core that is not described there counts as one without hyper-threads.
std::vector<int> NeighboursTogether(std::vector<int> cores, const std::string& system = "/sys/devices/system/cpu");

// Splits `cores` into `count` consecutive runs; if they do not divide evenly, the first ones get one more. Requires
// count <= cores.size().
std::vector<std::vector<int>> ShareCores(const std::vector<int>& cores, int count);

// A task's claim to cores, and what its machine offers.
struct CoreClaim {
  bool bound = false;           // the task gets cores of its own; other tasks may run on any core
  std::string host = {};        // for messages
  std::string machine = {};     // identifies the machine under any host name (see ThisMachine); empty: unknown
  std::vector<int> cores = {};  // the machine's, in the order of NeighboursTogether
};

// The cores of each task, empty for a task that is not bound. Each machine's cores are divided among its bound tasks in
// order. INVALID_ARGUMENT names a host that has too few.
StatusOr<std::vector<std::vector<int>>> ShareOutCores(const std::vector<CoreClaim>& tasks);

// The value of `machine` for this machine. It is valid until the next boot and the same in all containers.
std::string ThisMachine();

}  // namespace millrace::launch
