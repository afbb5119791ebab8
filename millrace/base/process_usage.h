// What this process, and all of them together, take of the machine: cores and memory.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace millrace {

// Seconds of its threads on a core, since it started.
struct ProcessUsage {
  double user_seconds = 0;
  double system_seconds = 0;
};
ProcessUsage UsageOfThisProcess();

// How many cores this process may keep busy: those that it may run on, or the quota of its control group where that is less.
double UsableCores();

// Of the machine, whoever uses it: seconds that its cores were busy since it started, added up, and how many there are; 0: not known.
struct HostUsage {
  double busy_seconds = 0;
  int cores = 0;
};
HostUsage UsageOfThisHost();

// From the text of /proc/stat, whose times are in `ticks_per_second`.
HostUsage ParseHostUsage(absl::string_view stat, double ticks_per_second);

// What cgroup v2's cpu.max grants, in cores: 2.5 of "250000 100000". 0: no limit, or none that can be read.
double CoresOfQuota(absl::string_view cpu_max);

// Bytes that this process may still take: what the machine has left, or its control group where that is less.
size_t AvailableMemory();

}  // namespace millrace
