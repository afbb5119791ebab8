#include "millrace/launch/job_events.h"

#include <algorithm>

#include "millrace/launch/stream_lines.h"

namespace millrace::launch {

void JobEvents::Add(double seconds, absl::string_view kind, absl::string_view task, absl::string_view text) {
  if (events_.size() == kMost) events_.pop_front();
  events_.push_back({.number = ++last_,
                     .seconds = seconds,
                     .kind = std::string(kind),
                     .task = std::string(task),
                     .text = ForTerminal(text.substr(0, kMaxText))});
}

std::vector<JobEvent> JobEvents::After(int64_t after) const {
  const auto first =
      std::find_if(events_.begin(), events_.end(), [&](const JobEvent& event) { return event.number > after; });
  return std::vector<JobEvent>(first, events_.end());
}

}  // namespace millrace::launch
