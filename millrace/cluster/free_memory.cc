#include "millrace/cluster/free_memory.h"

#include <malloc.h>

#include <utility>

namespace millrace {
namespace {

constexpr absl::Duration kDelay = absl::Seconds(1);

void ReturnNow() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

void KeepFreedMemory() {
#ifdef __GLIBC__
  static const bool once = [] {
    // Blocks of up to the first size come from malloc's own heaps, at the end of which that much may stay free.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 128 << 20);
    return true;
  }();
  (void)once;
#endif
}

std::shared_ptr<FreeMemoryReturn> FreeMemoryReturn::Make(TimerQueue* timers, Scheduler* scheduler) {
  return std::shared_ptr<FreeMemoryReturn>(new FreeMemoryReturn(timers, scheduler));
}

void FreeMemoryReturn::Poke() {
  MutexLock lock(&mu_);
  if (stopped_ || timer_ != 0) return;
  timer_ = timers_->Schedule(kDelay, [weak = weak_from_this()] {
    const std::shared_ptr<FreeMemoryReturn> self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(&self->mu_);
      if (self->stopped_) return;
      self->timer_ = 0;
    }
    self->scheduler_->Schedule(ReturnNow);
  });
}

void FreeMemoryReturn::Stop() {
  TimerQueue::Id timer = 0;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    timer = std::exchange(timer_, 0);
  }
  if (timer != 0) timers_->Cancel(timer);
}

}  // namespace millrace
