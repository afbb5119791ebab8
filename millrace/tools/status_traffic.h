// What tasks take of their cores and send to each other, for `millrace status`.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/cluster/task_rates.h"
#include "millrace/proto/status.pb.h"
#include "nlohmann/json_fwd.hpp"

namespace millrace {

// The lines of one task; with rates where `rate` is not null and has some. Nothing for a task that tells no figures.
void AppendTraffic(const TaskStatus& status, const TaskRate* rate, std::string* text);
// "cpu", "peers" and "refused_connections"; "rates" when `rate` has some.
void AddTrafficJson(const TaskStatus& status, const TaskRate* rate, nlohmann::json* task);

// From files that `millrace bench-net --json` wrote, of this host and of pairs of hosts; of several of one sort the fastest counts. INVALID_ARGUMENT names
// a file that holds no such thing.
StatusOr<Ceilings> ReadCeilings(const std::vector<std::string>& files);
// How fast this machine copies memory now, in GB/s. Takes some tens of milliseconds.
double MeasureCopies();

}  // namespace millrace
