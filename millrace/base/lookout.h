// Whether to look for an event again and again for a moment, before sleeping until it comes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace millrace {

// To be woken on a core that has gone idle takes longer than a peer of the same host takes for a small answer: whoever expects one does better to stay awake for it,
// where there are cores to spare. Nobody tells whether there are. So a thread looks out only after answers that came quickly, and where that was in vain (the peer
// perhaps waits for this very core) only after many more of them: at worst one time in hundreds.
//
// For one thread.
class Lookout {
 public:
  using Clock = std::chrono::steady_clock;

  // How long it is worth to look.
  static constexpr Clock::duration kLimit = std::chrono::microseconds(100);

  bool worthwhile() const { return quick_ >= needed_; }

  // A wait is over, which began with looking or not.
  void Waited(Clock::duration time, bool looked) {
    const bool quick = time < (looked ? kLimit : kWithWaking);
    if (looked) needed_ = quick ? std::max(needed_ / 2, kFewest) : std::min(needed_ * 8, kMost);
    quick_ = quick ? quick_ + 1 : 0;
  }

 private:
  static constexpr Clock::duration kWithWaking = 2 * kLimit;  // what would have been quick, had it not slept
  static constexpr int64_t kFewest = 4, kMost = 512;

  int64_t quick_ = 0;  // answers one after the other
  int64_t needed_ = kFewest;
};

}  // namespace millrace
