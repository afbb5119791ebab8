#include "millrace/train/timeline/trace_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

// Nanoseconds as the trace's microseconds, without rounding.
std::string Micros(int64_t nanos) {
  const bool negative = nanos < 0;
  const uint64_t size = negative ? -static_cast<uint64_t>(nanos) : static_cast<uint64_t>(nanos);
  return absl::StrFormat("%s%d.%03d", negative ? "-" : "", size / 1000, size % 1000);
}

// The events that are open on a lane.
class Stack {
 public:
  bool Takes(const TraceEvent& event, bool nests) {
    while (!ends_.empty() && ends_.back() <= event.start) ends_.pop_back();
    if (!ends_.empty() && (!nests || event.end > ends_.back())) return false;
    ends_.push_back(event.end);
    return true;
  }

 private:
  std::vector<int64_t> ends_;
};

}  // namespace

std::string JsonText(absl::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void TraceWriter::Add(const std::string& process, const TraceLane& lane, TraceEvent event) {
  event.end = std::max(event.end, event.start + 1);  // viewers drop events of zero length
  processes_[process][lane].push_back(std::move(event));
}

int64_t TraceWriter::FirstStart() const {
  int64_t first = INT64_MAX;
  for (const auto& [process, lanes] : processes_) {
    for (const auto& [lane, events] : lanes) {
      for (const TraceEvent& event : events) first = std::min(first, event.start);
    }
  }
  return first == INT64_MAX ? 0 : first;
}

std::string TraceWriter::Events(const std::vector<std::string>& processes, int64_t origin) const {
  std::vector<std::string> names;
  for (const std::string& name : processes) {
    if (processes_.contains(name)) names.push_back(name);
  }
  for (const auto& [name, lanes] : processes_) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::vector<std::string> lines;
  const auto meta = [&](const char* what, int pid, int tid, const std::string& args) {
    lines.push_back(
        absl::StrFormat(R"({"name": "%s", "ph": "M", "pid": %d, "tid": %d, "args": {%s}})", what, pid, tid, args));
  };
  for (size_t pid = 0; pid < names.size(); ++pid) {
    meta("process_name", pid, 0, absl::StrCat("\"name\": ", JsonText(names[pid])));
    meta("process_sort_index", pid, 0, absl::StrCat("\"sort_index\": ", pid));
    int tid = 0;
    for (const auto& [lane, unsorted] : processes_.at(names[pid])) {
      std::vector<TraceEvent> events = unsorted;
      std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
        return std::pair(a.start, -a.end) < std::pair(b.start, -b.end);
      });
      std::vector<Stack> stacks;
      for (const TraceEvent& event : events) {
        size_t at = 0;
        while (at < stacks.size() && !stacks[at].Takes(event, lane.nests)) ++at;
        if (at == stacks.size()) {
          stacks.emplace_back().Takes(event, lane.nests);
          const std::string name = at == 0 ? lane.name : absl::StrCat(lane.name, " (", at + 1, ")");
          meta("thread_name", pid, tid + at, absl::StrCat("\"name\": ", JsonText(name)));
          meta("thread_sort_index", pid, tid + at, absl::StrCat("\"sort_index\": ", tid + at));
        }
        const std::string where = absl::StrFormat(R"("pid": %d, "tid": %d)", pid, tid + at);
        const int64_t start = event.start - origin, end = event.end - origin;
        const auto slice = [&](const TraceEvent& e) {
          lines.push_back(absl::StrFormat(
              R"({"name": %s, "cat": "%s", "ph": "X", %s, "ts": %s, "dur": %s, "args": {%s}})", JsonText(e.name),
              e.category, where, Micros(e.start - origin), Micros(e.end - e.start), e.args));
        };
        slice(event);
        for (const TraceEvent& part : event.inside) slice(part);
        // An arrow binds to the slice at its time, so it is placed just before the slice's end.
        if (event.arrow_out != 0) {
          lines.push_back(absl::StrFormat(R"({"name": "sent", "cat": "Sent", "ph": "s", "id": %d, %s, "ts": %s})",
                                          event.arrow_out, where, Micros(start)));
        }
        if (event.arrow_in != 0) {
          lines.push_back(
              absl::StrFormat(R"({"name": "sent", "cat": "Sent", "ph": "f", "bp": "e", "id": %d, %s, "ts": %s})",
                              event.arrow_in, where, Micros(end - 1)));
        }
      }
      tid += static_cast<int>(stacks.size());
    }
  }
  return absl::StrCat("[\n", absl::StrJoin(lines, ",\n"), "\n]");
}

}  // namespace millrace
