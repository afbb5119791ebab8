// Adaptive spinning: whether to poll for an event briefly before blocking on it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace millrace {

// Waking a thread on an idle core takes longer than a peer on the same host takes for a small reply, so a thread that
// expects one should poll, provided that there are spare cores, which it cannot know. It therefore polls only after a
// run of fast replies. A poll that finds nothing (the peer may be waiting for this very core) multiplies the length of
// the run that is needed, so that in the worst case one wait in hundreds polls in vain.
//
// Not thread-safe: one per thread.
class Lookout {
 public:
  using Clock = std::chrono::steady_clock;

  // How long to poll.
  static constexpr Clock::duration kLimit = std::chrono::microseconds(100);

  bool worthwhile() const { return quick_ >= needed_; }

  // Records a finished wait of length `time`; `looked` says whether it began by polling.
  void Waited(Clock::duration time, bool looked) {
    const bool quick = time < (looked ? kLimit : kWithWaking);
    if (looked) needed_ = quick ? std::max(needed_ / 2, kFewest) : std::min(needed_ * 8, kMost);
    quick_ = quick ? quick_ + 1 : 0;
  }

 private:
  static constexpr Clock::duration kWithWaking = 2 * kLimit;  // counts as fast although it includes the wake-up
  static constexpr int64_t kFewest = 4, kMost = 512;

  int64_t quick_ = 0;  // consecutive fast replies
  int64_t needed_ = kFewest;
};

}  // namespace millrace
