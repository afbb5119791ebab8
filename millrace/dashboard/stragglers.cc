#include "millrace/dashboard/stragglers.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"

namespace millrace::dashboard {
namespace {

// A task below this share of the median speed of its job is slow.
constexpr double kSlow = 0.67;
// What a look counts less with each later one: about the last minute of looks a second apart counts.
constexpr double kDecay = 0.97;
constexpr double kFewLooks = 10;
constexpr double kOften = 0.7;

}  // namespace

std::map<std::string, std::string> SlowTasks(absl::Span<const TaskSpeed> speeds) {
  std::map<std::string, std::vector<double>> by_job;
  for (const TaskSpeed& speed : speeds) by_job[speed.job].push_back(speed.steps_per_second);
  for (auto& [job, values] : by_job) std::sort(values.begin(), values.end());
  std::map<std::string, std::string> slow;
  for (const TaskSpeed& speed : speeds) {
    const std::vector<double>& all = by_job[speed.job];
    // The upper median: of two tasks the faster one is the measure.
    const double median = all[all.size() / 2];
    if (all.size() < 2 || speed.steps_per_second >= kSlow * median) continue;
    slow[speed.task] =
        absl::StrFormat("%.1f steps/s, where the median of its job is %.1f", speed.steps_per_second, median);
  }
  return slow;
}

void WaitedFor::Add(const std::set<std::string>& waited_for) {
  looks_ = kDecay * looks_ + 1;
  for (auto it = counts_.begin(); it != counts_.end();) {
    it->second *= kDecay;
    it = it->second < 0.01 ? counts_.erase(it) : std::next(it);
  }
  for (const std::string& task : waited_for) counts_[task] += 1;
}

std::map<std::string, std::string> WaitedFor::Often() const {
  std::map<std::string, std::string> often;
  if (looks_ < kFewLooks) return often;
  for (const auto& [task, count] : counts_) {
    if (count < kOften * looks_) continue;
    often[task] = absl::StrFormat("others waited for it in %.0f %% of the last looks", 100 * count / looks_);
  }
  return often;
}

}  // namespace millrace::dashboard
