#include "millrace/cluster/hang_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace millrace {

HangReport ExplainHang(absl::Span<const TaskView> tasks, absl::Duration limit) {
  HangReport report;
  struct Found {
    absl::Duration age;
    std::string line;
  };
  std::vector<Found> found;
  for (const TaskView& view : tasks) {
    if (!view.answer.ok()) {
      found.push_back({absl::InfiniteDuration(), absl::StrCat(view.task, " does not answer: ", view.answer.message())});
      continue;
    }
    for (const TaskStatus::Wait& wait : view.status.waits()) {
      const absl::Duration age = absl::Microseconds(view.status.now_micros() - wait.since_micros());
      if (age < limit) continue;
      found.push_back({age, absl::StrCat(view.task, " waits ", absl::ToInt64Seconds(age), " s at node ", wait.node(), " for ", wait.what())});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.age > b.age; });
  for (Found& f : found) report.waits.push_back(std::move(f.line));
  if (!report.waits.empty()) report.cause = report.waits.front();
  return report;
}

}  // namespace millrace
