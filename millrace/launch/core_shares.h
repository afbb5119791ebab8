// Cores for the workers of a job, to each its own.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"

namespace millrace::launch {

// `cores` so that neighbours stand together: by socket, and hyper-threads of one core side by side, whatever their numbers. `system` tells where they are;
// those of which it does not are taken to be alone.
std::vector<int> NeighboursTogether(std::vector<int> cores, const std::string& system = "/sys/devices/system/cpu");

// `cores` in `count` runs, the first ones longer by one where they do not come out even. There are at least as many cores.
std::vector<std::vector<int>> ShareCores(const std::vector<int>& cores, int count);

// What there is for a task where it runs.
struct CoreClaim {
  bool bound = false;         // it gets cores of its own; others run anywhere
  std::string host = {};      // for people
  std::string machine = {};   // the same whatever name the machine is called by; empty: not known
  std::vector<int> cores = {};  // of the machine, as NeighboursTogether orders them
};

// For each task its cores, none for those that run anywhere: each machine's are shared out among its bound tasks in order. INVALID_ARGUMENT names a host
// that has too few.
StatusOr<std::vector<std::vector<int>>> ShareOutCores(const std::vector<CoreClaim>& tasks);

// What `machine` is for this one: it lasts until the next boot, and is the same in all containers.
std::string ThisMachine();

}  // namespace millrace::launch
