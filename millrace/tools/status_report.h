// The state of a cluster, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/cluster/bottleneck.h"
#include "millrace/cluster/cluster_status.h"
#include "millrace/cluster/hang_report.h"

namespace millrace {

// Aligned text that ends with a newline, with the hang after it when there is one; and with rates and the bottleneck where that is not null.
std::string StatusText(const std::string& target, const std::vector<TaskView>& tasks, const HangReport& hang, const Bottleneck* bottleneck = nullptr);
// One JSON object. Identifiers of 64 bits are strings, since most readers keep 53. `hang` is null, or an object of cause, waits and busy; `bottleneck`
// is null, or an object of kind, line and suggests.
std::string StatusJson(const std::string& target, const std::vector<TaskView>& tasks, const HangReport& hang, const Bottleneck* bottleneck = nullptr);
// Somebody waits, and for what can be said.
bool IsHang(const HangReport& hang);

// "2.3 s", "340 ms", "5.2 min", "3.1 h", "2.0 days".
std::string AgeText(absl::Duration age);

}  // namespace millrace
