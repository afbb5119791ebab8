// The page's document as metrics in Prometheus' text format.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace millrace::dashboard {

// Of the dashboard itself.
struct OwnFigures {
  int viewers = 0;
  double cpu_seconds = 0;
  double resident_bytes = 0;
};

// Version 0.0.4 of the format. Tasks are labelled by `job` and `task` as in a cluster spec ("worker", "0"); all other
// labels have a fixed set of values, so that the number of series is bounded by the number of tasks.
std::string MetricsText(const nlohmann::json& document, const OwnFigures& own);

}  // namespace millrace::dashboard
