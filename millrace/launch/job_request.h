// What a client of a job's socket asks for: one line.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace::launch {

struct JobRequest {
  enum class Kind {
    kReport,  // the job's report, with the events after number `events_after`
    kOutput,  // the end of the output of `task`
    kEnd,     // the report that is made when the job has ended; the answer comes then
  };
  static constexpr size_t kMaxLine = 256;

  Kind kind = Kind::kReport;
  int64_t events_after = 0;
  std::string task = {};

  // "report 17\n", "output worker/0\n", "end\n".
  std::string ToLine() const;
  // `line` has no newline. INVALID_ARGUMENT if it is not a request.
  static StatusOr<JobRequest> Parse(absl::string_view line);
};

}  // namespace millrace::launch
