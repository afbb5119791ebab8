// CPU and memory usage of this process and of its host.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace millrace {

// CPU time of all threads since the process started.
struct ProcessUsage {
  double user_seconds = 0;
  double system_seconds = 0;
};
ProcessUsage UsageOfThisProcess();

// The number of cores that this process may use: its affinity mask or its cgroup's CPU quota, whichever is less.
double UsableCores();

// Usage of the whole machine by all processes: busy time since boot, summed over its cores, and the number of cores. 0
// if unknown.
struct HostUsage {
  double busy_seconds = 0;
  int cores = 0;
};
HostUsage UsageOfThisHost();

// Parses the text of /proc/stat, whose times are in units of 1/`ticks_per_second`.
HostUsage ParseHostUsage(absl::string_view stat, double ticks_per_second);

// The number of cores that a cgroup v2 cpu.max grants: 2.5 for "250000 100000". 0 if there is no limit or it cannot be
// parsed.
double CoresOfQuota(absl::string_view cpu_max);

// Bytes that this process can still allocate: what is available on the machine or in its cgroup, whichever is less.
size_t AvailableMemory();

}  // namespace millrace
