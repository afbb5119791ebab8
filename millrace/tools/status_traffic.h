// The CPU usage of tasks and the traffic between them, for `millrace status`.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/cluster/watch/task_rates.h"
#include "millrace/proto/status.pb.h"
#include "nlohmann/json_fwd.hpp"

namespace millrace {

// "12.0 MB".
std::string BytesText(int64_t bytes);

// Appends the lines of one task, with rates if `rate` is not null and has any. Appends nothing for a task that reports
// no figures.
void AppendTraffic(const TaskStatus& status, const TaskRate* rate, std::string* text);
// Adds "cpu", "peers" and "refused_connections", and "rates" if `rate` has any.
void AddTrafficJson(const TaskStatus& status, const TaskRate* rate, nlohmann::json* task);

// Reads files that `millrace bench-net --json` wrote, for this host or for a pair of hosts; if there are several of one
// kind, the fastest counts. INVALID_ARGUMENT names a file that has other contents.
StatusOr<Ceilings> ReadCeilings(const std::vector<std::string>& files);
// Measures how fast this machine copies memory, in GB/s. Takes some tens of milliseconds.
double MeasureCopies();

}  // namespace millrace
