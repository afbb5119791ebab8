// The clocks of several tasks brought together, from what is known of pairs of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace millrace {

// Each fact bounds the difference of two clocks from both sides. Together they bound the difference of every clock from one that is taken for the
// reference; the middle of these bounds contradicts none of the facts: what was sent before it arrived stays so. Times are in nanoseconds.
class ClockAlignment {
 public:
  struct Estimate {
    int64_t offset = 0;  // this clock less the reference
    int64_t error = 0;   // half the distance of the bounds
    bool known = false;  // false: no fact leads to it from the reference, and its times are taken as they are
  };

  // least <= clock `a` less clock `b` <= most.
  void Bound(const std::string& a, const std::string& b, int64_t least, int64_t most);
  // What `a` showed at an event lies between what `b` showed before and after it.
  void Between(const std::string& a, int64_t at, const std::string& b, int64_t before, int64_t after) { Bound(a, b, at - after, at - before); }

  // Of every clock that was named. Clocks that drift or were set meanwhile may contradict themselves: then all bounds are loosened until they do not, and
  // `slack` says by how much. Takes time cubic in the number of clocks at worst.
  std::map<std::string, Estimate> Solve(const std::string& reference, int64_t* slack) const;

 private:
  using Distances = std::map<std::string, int64_t>;
  // The most that each clock may be before the reference (or, `reverse`, behind it); false for a contradiction.
  bool Relax(const std::string& reference, int64_t slack, bool reverse, Distances* most) const;

  // a less b is at most this.
  std::map<std::pair<std::string, std::string>, int64_t> most_;
  std::map<std::string, int> clocks_;
};

}  // namespace millrace
