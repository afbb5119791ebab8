// Feeds arbitrary bytes to the readers of a job's socket: the report, and the request.
#include <cstddef>
#include <cstdint>

#include "millrace/launch/job_report.h"
#include "millrace/launch/job_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::launch;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto request = JobRequest::Parse(text); request.ok() && request->ToLine().size() > size + 25)
    __builtin_trap();
  JobReport::WithoutCredentials(text);
  const auto report = JobReport::FromJson(text);
  if (!report.ok()) return 0;
  report->ToText();
  // What was read is written and read again without loss.
  const auto again = JobReport::FromJson(report->ToJson());
  if (!again.ok() || again->tasks.size() != report->tasks.size() || again->events.size() != report->events.size())
    __builtin_trap();
  return 0;
}
