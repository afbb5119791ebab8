#include "millrace/base/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/base/affinity.h"

namespace millrace {
namespace {

constexpr char kGroups[] = "/sys/fs/cgroup";

std::string FirstLine(const std::string& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

// The number that a file begins with; the largest size_t if it begins with none ("max").
size_t NumberIn(const std::string& file) {
  std::ifstream in(file);
  size_t number;
  return in >> number ? number : std::numeric_limits<size_t>::max();
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// The smallest CPU quota among the cgroups that enclose this process, in cores; 0 if there is no limit.
double Quota() {
  double least = 0;
  const auto take = [&](double cores) {
    if (cores > 0) least = least == 0 ? cores : std::min(least, cores);
  };
  std::string group = FirstLine("/proc/self/cgroup");
  absl::string_view path = group;
  // cgroup v2 has one line. Inside a container its path may not be visible; the mount point is then the group itself.
  if (absl::ConsumePrefix(&path, "0::")) {
    while (true) {
      take(CoresOfQuota(FirstLine(absl::StrCat(kGroups, path == "/" ? "" : path, "/cpu.max"))));
      const size_t slash = path.rfind('/');
      if (path.empty() || path == "/" || slash == absl::string_view::npos) break;
      path = path.substr(0, slash);
    }
  }
  take(CoresOfQuota(absl::StrCat(FirstLine(absl::StrCat(kGroups, "/cpu/cpu.cfs_quota_us")), " ",
                                 FirstLine(absl::StrCat(kGroups, "/cpu/cpu.cfs_period_us")))));
  return least;
}

}  // namespace

ProcessUsage UsageOfThisProcess() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return {.user_seconds = Seconds(usage.ru_utime), .system_seconds = Seconds(usage.ru_stime)};
}

HostUsage UsageOfThisHost() {
  std::ifstream in("/proc/stat");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return ParseHostUsage(text, static_cast<double>(sysconf(_SC_CLK_TCK)));
}

HostUsage ParseHostUsage(absl::string_view stat, double ticks_per_second) {
  HostUsage usage;
  for (const absl::string_view line : absl::StrSplit(stat, '\n')) {
    if (!absl::StartsWith(line, "cpu")) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
    usage.cores += words[0] != "cpu";
    if (words[0] != "cpu" || !(ticks_per_second > 0)) continue;
    // The fields are user, nice, system, idle, iowait, irq, softirq, steal; the guest times that follow are already
    // counted in user and nice.
    for (const size_t i : {1, 2, 3, 6, 7, 8}) {
      double ticks;
      if (i < words.size() && absl::SimpleAtod(words[i], &ticks)) usage.busy_seconds += ticks / ticks_per_second;
    }
  }
  return usage;
}

double UsableCores() {
  const double allowed = AllowedCoreCount(), quota = Quota();
  return quota > 0 ? std::min(allowed, quota) : allowed;
}

double CoresOfQuota(absl::string_view cpu_max) {
  const std::vector<absl::string_view> words = absl::StrSplit(cpu_max, ' ', absl::SkipWhitespace());
  double quota, period;
  // "max" (cgroup v2) and -1 (v1) mean no limit.
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) || !absl::SimpleAtod(words[1], &period)) return 0;
  return quota > 0 && period > 0 ? quota / period : 0;
}

size_t AvailableMemory() {
  size_t available = std::numeric_limits<size_t>::max();
  std::ifstream machine("/proc/meminfo");
  for (std::string line; std::getline(machine, line);) {
    if (line.starts_with("MemAvailable:")) available = std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  }
  for (const auto& [limit, used] :
       {std::pair("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        std::pair("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes")}) {
    const size_t most = NumberIn(limit), now = NumberIn(used);
    if (most != std::numeric_limits<size_t>::max() && now != std::numeric_limits<size_t>::max())
      available = std::min(available, most - std::min(most, now));
  }
  return available;
}

}  // namespace millrace
