#include "millrace/launch/job_request.h"

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace millrace::launch {

std::string JobRequest::ToLine() const {
  switch (kind) {
    case Kind::kOutput:
      return absl::StrCat("output ", task, "\n");
    case Kind::kEnd:
      return "end\n";
    case Kind::kReport:
      break;
  }
  return absl::StrCat("report ", events_after, "\n");
}

StatusOr<JobRequest> JobRequest::Parse(absl::string_view line) {
  JobRequest request;
  absl::string_view rest = line;
  if (rest == "end") {
    request.kind = Kind::kEnd;
    return request;
  }
  if (absl::ConsumePrefix(&rest, "output ") && !rest.empty()) {
    request.kind = Kind::kOutput;
    request.task = std::string(rest);
    return request;
  }
  if (absl::ConsumePrefix(&rest, "report ") && absl::SimpleAtoi(rest, &request.events_after)) return request;
  return InvalidArgument("'", line, "' is not a request to a launcher");
}

}  // namespace millrace::launch
