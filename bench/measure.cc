#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// The number after `key` in /proc/self/status, in MB.
double FromStatus(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) == 0) {
      std::istringstream words(line.substr(key.size() + 1));
      double kb = 0;
      words >> kb;
      return kb / 1024;
    }
  }
  return 0;
}

}  // namespace

double MedianSeconds(double seconds, absl::FunctionRef<void()> call) {
  for (int i = 0; i < 20; ++i) call();
  std::vector<double> times;
  const auto start = SteadyClock::now();
  while (times.size() < 10 || SecondsSince(start) < seconds) {
    const auto begin = SteadyClock::now();
    call();
    times.push_back(SecondsSince(begin));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

double Rate(double seconds, absl::FunctionRef<void()> call, const RateOptions& options) {
  auto begin = SteadyClock::now();
  for (int n = 0; n < options.warm || SecondsSince(begin) < seconds / 5; ++n) call();
  begin = SteadyClock::now();
  for (int n = options.chunk;; n += options.chunk) {
    for (int i = 0; i < options.chunk; ++i) call();
    const double took = SecondsSince(begin);
    if (took >= seconds) return n / took;
  }
}

double ResidentMb() { return FromStatus("VmRSS"); }
double PeakMb() { return FromStatus("VmHWM"); }

}  // namespace millrace::bench
