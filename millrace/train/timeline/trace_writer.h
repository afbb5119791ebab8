// Writes events as the JSON of a Chrome trace, on rows on which they do not overlap. Internal to the timeline.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace millrace {

// `text` as a quoted JSON string. Invalid UTF-8 is replaced.
std::string JsonText(absl::string_view text);

// An interval of time on a task.
struct TraceEvent {
  std::string name = {};
  std::string category = {};
  int64_t start = 0;  // nanoseconds
  int64_t end = 0;
  std::string args = {};  // the members of a JSON object: "\"bytes\": 4"
  // The identifier of an arrow that begins or ends here; 0 for none.
  int64_t arrow_out = 0;
  int64_t arrow_in = 0;
  // Intervals shown within this one.
  std::vector<TraceEvent> inside = {};
};

// A row of a task in the trace.
struct TraceLane {
  int order = 0;  // position among the task's rows; ties are ordered by name
  std::string name = {};
  // Whether events may nest, as calls on a thread do. If not, they may not overlap.
  bool nests = false;

  friend auto operator<=>(const TraceLane&, const TraceLane&) = default;
};

// Collects events, then writes them with times relative to `origin`.
class TraceWriter {
 public:
  // An event that overlaps another one on the lane goes to an extra lane, "LANE (2)" and so on.
  void Add(const std::string& process, const TraceLane& lane, TraceEvent event);
  // The start of the first event; 0 if there are none.
  int64_t FirstStart() const;
  // The array "traceEvents". Processes are in the order of `processes`, followed by the others by name.
  std::string Events(const std::vector<std::string>& processes, int64_t origin) const;

 private:
  std::map<std::string, std::map<TraceLane, std::vector<TraceEvent>>> processes_;
};

}  // namespace millrace
