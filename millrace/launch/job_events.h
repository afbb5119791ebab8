// What happened in a job, for the time line of its dashboard.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace millrace::launch {

struct JobEvent {
  int64_t number = 0;  // counts from 1
  double seconds = 0;  // since the launch
  // "start", "end", "fail", "lose", "stop", "restart", "suspend", "resume", "save", "notice" or "hang".
  std::string kind = {};
  std::string task = {};  // empty: the whole job
  std::string text = {};
};

// The newest events of a job; older ones are dropped, so memory is bounded. Not thread-safe.
class JobEvents {
 public:
  static constexpr size_t kMost = 500;
  static constexpr size_t kMaxText = 300;

  void Add(double seconds, absl::string_view kind, absl::string_view task, absl::string_view text);
  // Those whose number is above `after`, oldest first.
  std::vector<JobEvent> After(int64_t after) const;

 private:
  std::deque<JobEvent> events_;
  int64_t last_ = 0;
};

}  // namespace millrace::launch
