#include "millrace/base/shared_bell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "millrace/base/lookout.h"

namespace millrace {
namespace {

// How often to look before the core is left to others for a moment: some 2 us.
constexpr int kLooksBeforeYield = 50;
// A moment that took longer was used by another thread.
constexpr std::chrono::microseconds kUsedMoment{1};
// After so many waits in a row during which others used the core, block: the scheduler chooses a core for a thread that
// it wakes, while two threads that leave the core to each other may stay on it although another one is idle.
constexpr int kMostShared = 64;

void RelaxCore() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Not a private futex: the waiting thread may be one of another process.
long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout = nullptr) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

void SharedBell::Ring(uint32_t by) {
  // In one order with the accesses in Wait: either this sees a thread that is about to block, or its futex call sees
  // that the bell has rung.
  rung_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) == 0) return;
  const uint32_t only = only_.load(std::memory_order_seq_cst);
  if (by == 0 || only == 0 || by == only) Futex(&rung_, FUTEX_WAKE, INT_MAX);
}

bool SharedBell::Wait(uint32_t seen, std::chrono::nanoseconds timeout) {
  static thread_local Lookout lookout;
  static thread_local int shared = 0;  // waits in a row during which others used the core
  if (rung() != seen) return true;
  const bool look = lookout.worthwhile() && shared < kMostShared;
  // A thread that has just seen others use its core leaves it to them at once.
  const int before_yield = shared > 0 ? 0 : kLooksBeforeYield;
  const Lookout::Clock::time_point begin = Lookout::Clock::now();
  bool used = false;
  for (int looks = 0; look && rung() == seen; ++looks) {
    if (looks < before_yield) {
      RelaxCore();
      continue;
    }
    const Lookout::Clock::time_point now = Lookout::Clock::now();
    if (now - begin > Lookout::kLimit) break;
    sched_yield();
    used |= Lookout::Clock::now() - now > kUsedMoment;
  }
  shared = used ? shared + 1 : 0;
  if (rung() == seen) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
    const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
    const bool limited = timeout != std::chrono::nanoseconds::max();
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    // Returns at once if it has rung, and early if a signal comes.
    while (rung() == seen && (Futex(&rung_, FUTEX_WAIT, seen, limited ? &limit : nullptr) == 0 || errno != ETIMEDOUT)) {
    }
    asleep_.fetch_sub(1, std::memory_order_seq_cst);
  }
  lookout.Waited(Lookout::Clock::now() - begin, look);
  return rung() != seen;
}

}  // namespace millrace
