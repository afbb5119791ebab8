// The state of a cluster, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/cluster/cluster_status.h"

namespace millrace {

// Aligned text that ends with a newline.
std::string StatusText(const std::string& target, const std::vector<TaskView>& tasks);
// One JSON object. Numbers of 64 bits are strings, since most readers keep 53.
std::string StatusJson(const std::string& target, const std::vector<TaskView>& tasks);

// "2.3 s", "340 ms", "5.2 min", "3.1 h", "2.0 days".
std::string AgeText(absl::Duration age);

}  // namespace millrace
