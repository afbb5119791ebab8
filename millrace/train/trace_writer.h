// Events to the JSON of a Chrome trace, on lanes on which they do not overlap. Internal to the timeline.
#pragma once

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
};

// Collects events, then writes them. Times in the JSON are less `origin`.
class TraceWriter {
 public:
  // On the lane `lane` of `process`, together with what nests in them or follows them; what overlaps goes to the lanes "LANE (2)" and so on. Lanes are shown
  // in the order of `order`, then by name.
  void Add(const std::string& process, int order, const std::string& lane, TraceEvent event);
  // The start of the first event; 0 without any.
  int64_t FirstStart() const;
  // The array "traceEvents". Processes in the order of `processes`, others after them by name.
  std::string Events(const std::vector<std::string>& processes, int64_t origin) const;

 private:
  using Lane = std::pair<int, std::string>;
  std::map<std::string, std::map<Lane, std::vector<TraceEvent>>> processes_;
};

}  // namespace millrace
