// Converts step statistics to a Chrome trace.
#pragma once

#include <string>

namespace tensorflow {
class StepStats;
}

namespace millrace {

// The statistics of a step that was run with RunOptions::trace as a Chrome trace (chrome://tracing, Perfetto): JSON
// text. Each device is a process; train/timeline/timeline.h shows several tasks on one clock.
std::string ChromeTrace(const ::tensorflow::StepStats& stats);

}  // namespace millrace
