#include "millrace/train/timeline/clock_alignment.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Bounds beyond this, about two weeks, carry no information and could overflow sums.
constexpr int64_t kFar = int64_t{1} << 50;

}  // namespace

void ClockAlignment::Bound(const std::string& a, const std::string& b, int64_t least, int64_t most) {
  if (a == b) return;
  clocks_[a];
  clocks_[b];
  const auto note = [&](const std::string& x, const std::string& y, int64_t bound) {
    if (bound > kFar || bound < -kFar) return;
    const auto [it, is_new] = most_.try_emplace({x, y}, bound);
    if (!is_new) it->second = std::min(it->second, bound);
  };
  note(a, b, most);
  note(b, a, least == INT64_MIN ? INT64_MAX : -least);
}

bool ClockAlignment::Relax(const std::string& reference, int64_t slack, bool reverse, Distances* most) const {
  most->clear();
  (*most)[reference] = 0;
  for (size_t round = 0; round <= clocks_.size(); ++round) {
    bool changed = false;
    for (const auto& [pair, bound] : most_) {
      const auto& [to, from] = reverse ? std::pair(pair.second, pair.first) : pair;
      const auto it = most->find(from);
      if (it == most->end()) continue;
      const int64_t sum = it->second + bound + slack;
      const auto [at, is_new] = most->try_emplace(to, sum);
      if (!is_new && at->second <= sum) continue;
      at->second = sum;
      changed = true;
    }
    if (!changed) return true;
  }
  return false;
}

std::map<std::string, ClockAlignment::Estimate> ClockAlignment::Solve(const std::string& reference,
                                                                      int64_t* slack) const {
  Distances ahead, behind;
  *slack = 0;
  while (!Relax(reference, *slack, /*reverse=*/false, &ahead) || !Relax(reference, *slack, /*reverse=*/true, &behind)) {
    *slack = std::max<int64_t>(1000, *slack * 2);
    if (*slack > kFar) break;
  }
  std::map<std::string, Estimate> estimates;
  estimates[reference].known = true;
  for (const auto& [clock, unused] : clocks_) {
    Estimate& estimate = estimates[clock];
    const auto most = ahead.find(clock), least = behind.find(clock);
    if (clock == reference || most == ahead.end() || least == behind.end()) continue;
    estimate = {
        .offset = (most->second - least->second) / 2, .error = (most->second + least->second) / 2, .known = true};
  }
  return estimates;
}

}  // namespace millrace
