// A bell in memory that several processes share: one side rings it, threads of the other wait for it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace millrace {

// Lives in shared memory, or in that of one process; all zeros is a valid initial state. What was written before Ring
// is visible to a thread that has seen the bell ring.
//
//   const uint32_t seen = bell->rung();   // first
//   if (nothing is there) bell->Wait(seen);
//
// Thread-safe.
class SharedBell {
 public:
  uint32_t rung() const { return rung_.load(std::memory_order_acquire); }
  // Wakes all threads that wait. Costs a system call only if one of them has blocked. `by` says who rings, if that is
  // of interest (set_only); 0 wakes in any case.
  void Ring(uint32_t by = 0);
  // From now on threads that have blocked are woken by this one alone: somebody who waits for one after another should
  // not be woken by all. 0: by everybody. What others have rung for is seen after the next wake-up.
  void set_only(uint32_t by) { only_.store(by, std::memory_order_seq_cst); }
  // Returns true when the bell has rung since rung() was `seen` (see set_only). Adaptive spinning (lookout.h): after
  // short waits it polls for up to 100 us, and leaves the core to others meanwhile; then it blocks. Returns false when
  // it has blocked for `timeout` without a ring.
  bool Wait(uint32_t seen, std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

 private:
  std::atomic<uint32_t> rung_{0};
  std::atomic<uint32_t> asleep_{0};  // threads that have blocked, or are about to
  std::atomic<uint32_t> only_{0};
};

}  // namespace millrace
