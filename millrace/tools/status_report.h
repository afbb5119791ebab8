// The state of a cluster as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/cluster/watch/bottleneck.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/cluster/watch/hang_report.h"

namespace millrace {

// Aligned text that ends with a newline. Includes the hang if there is one, and rates and the bottleneck if
// `bottleneck` is not null.
std::string StatusText(const std::string& target, const std::vector<TaskView>& tasks, const HangReport& hang,
                       const Bottleneck* bottleneck = nullptr);
// One JSON object. 64-bit identifiers are strings, since most JSON parsers keep only 53 bits. `hang` is null, or an
// object of cause, waits and busy; `bottleneck` is null, or an object of kind, line and suggests.
std::string StatusJson(const std::string& target, const std::vector<TaskView>& tasks, const HangReport& hang,
                       const Bottleneck* bottleneck = nullptr);
// Whether a task waits for a cause that is known.
bool IsHang(const HangReport& hang);

// "2.3 s", "340 ms", "5.2 min", "3.1 h", "2.0 days".
std::string AgeText(absl::Duration age);

}  // namespace millrace
