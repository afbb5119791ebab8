// How long a thread that waits for an answer polls the connection itself.
#pragma once

#include <chrono>

namespace millrace {

// A thread that gives its connection back before the answer comes pays for three wake-ups instead of one: the end of
// its poll, the thread that then reads the answer, and its own. If it waits for very long, other threads should read
// the connection, which carries their answers too. It therefore polls briefly at first, and for longer after a wait
// that a longer poll would have covered: steps take milliseconds where many tasks share few cores.
//
// Not thread-safe: one per thread.
class WatchPatience {
 public:
  using Duration = std::chrono::milliseconds;

  static constexpr Duration kShort{2}, kLong{100};

  Duration limit() const { return limit_; }

  // Records a wait whose answer came `later` than the limit.
  void Outlasted(std::chrono::steady_clock::duration later) {
    limit_ = limit_ == kShort && kShort + later < kLong ? kLong : kShort;
  }

 private:
  Duration limit_ = kShort;
};

}  // namespace millrace
