// Aligns the clocks of several tasks from bounds on the differences of pairs of clocks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace millrace {

// Each fact bounds the difference of two clocks from both sides. Together they bound the offset of every clock from a
// reference clock; the estimate is the middle of these bounds, which contradicts none of the facts, so no message
// arrives before it was sent. Times are in nanoseconds.
class ClockAlignment {
 public:
  struct Estimate {
    int64_t offset = 0;  // this clock minus the reference
    int64_t error = 0;   // half the distance between the bounds
    bool known = false;  // false: no facts connect it with the reference; its times are used unchanged
  };

  // least <= (clock `a` - clock `b`) <= most.
  void Bound(const std::string& a, const std::string& b, int64_t least, int64_t most);
  // An event at time `at` of clock `a` happened between the times `before` and `after` of clock `b`.
  void Between(const std::string& a, int64_t at, const std::string& b, int64_t before, int64_t after) {
    Bound(a, b, at - after, at - before);
  }

  // Estimates the offset of every clock that was named. If clocks drifted or were set meanwhile, the facts may
  // contradict each other; then all bounds are loosened until they do not, and `slack` receives by how much. Takes at
  // worst cubic time in the number of clocks.
  std::map<std::string, Estimate> Solve(const std::string& reference, int64_t* slack) const;

 private:
  using Distances = std::map<std::string, int64_t>;
  // The most that each clock may be ahead of the reference (with `reverse`: behind it). Returns false on a
  // contradiction.
  bool Relax(const std::string& reference, int64_t slack, bool reverse, Distances* most) const;

  // The upper bound of a - b, by (a, b).
  std::map<std::pair<std::string, std::string>, int64_t> most_;
  std::map<std::string, int> clocks_;
};

}  // namespace millrace
