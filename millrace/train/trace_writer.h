// Events to the JSON of a Chrome trace, on lanes on which they do not overlap. Internal to the timeline.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace millrace {

// `text` in quotes. Bytes that are no UTF-8 are replaced.
std::string JsonText(absl::string_view text);

// Something that took time on a task.
struct TraceEvent {
  std::string name = {};
  std::string category = {};
  int64_t start = 0;  // nanoseconds
  int64_t end = 0;
  std::string args = {};  // the inside of a JSON object: "\"bytes\": 4"
  // Set where an arrow begins or ends; 0: none.
  int64_t arrow_out = 0;
  int64_t arrow_in = 0;
  // Parts of it, shown within it.
  std::vector<TraceEvent> inside = {};
};

// A row of a task.
struct TraceLane {
  int order = 0;  // among the lanes of its task; then by name
  std::string name = {};
  // Events may lie within others, as calls on a thread do. Otherwise each has a time of its own.
  bool nests = false;

  friend auto operator<=>(const TraceLane&, const TraceLane&) = default;
};

// Collects events, then writes them. Times in the JSON are less `origin`.
class TraceWriter {
 public:
  // What overlaps something on the lane goes to lanes beside it, "LANE (2)" and so on.
  void Add(const std::string& process, const TraceLane& lane, TraceEvent event);
  // The start of the first event; 0 without any.
  int64_t FirstStart() const;
  // The array "traceEvents". Processes in the order of `processes`, others after them by name.
  std::string Events(const std::vector<std::string>& processes, int64_t origin) const;

 private:
  std::map<std::string, std::map<TraceLane, std::vector<TraceEvent>>> processes_;
};

}  // namespace millrace
