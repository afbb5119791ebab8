#include "millrace/base/event_wait.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "millrace/base/fd.h"
#include "millrace/base/watch_patience.h"

namespace millrace {
namespace {

// One descriptor per thread, created on first use: creating one for each wait would take longer than many answers do.
Fd& WakeDescriptor() {
  static thread_local Fd wake;
  return wake;
}

}  // namespace

void EventWait::Notify() {
  MutexLock lock(&mu_);  // held to the end, so that the waiting thread cannot destroy this object before
  done_ = true;
  if (asleep_ == Asleep::kAtCondition) notified_.Signal();
  if (asleep_ != Asleep::kAtDescriptors || std::this_thread::get_id() == id_) return;
  woken_ = true;
  const uint64_t one = 1;
  while (write(wake_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void EventWait::Wait() {
  static thread_local WatchPatience patience;
  EventWatch* const watch = thread_.watch();
  Fd& wake = WakeDescriptor();
  if (!watch->empty() && !wake.ok()) wake = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  bool soon = wake.ok();
  while (soon && !watch->empty()) {
    {
      MutexLock lock(&mu_);
      if (done_) break;
      asleep_ = Asleep::kAtDescriptors;
      wake_ = wake.get();
    }
    soon = watch->HandleEvents(&thread_, static_cast<int>(patience.limit().count()), wake.get());
    MutexLock lock(&mu_);
    asleep_ = Asleep::kNo;
  }
  const bool polled = !watch->empty();
  watch->GiveBack();
  MutexLock lock(&mu_);
  asleep_ = Asleep::kAtCondition;
  const bool outlasted = polled && !done_;
  const auto gave_back = outlasted ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  while (!done_) notified_.Wait(&mu_);
  if (outlasted) patience.Outlasted(std::chrono::steady_clock::now() - gave_back);
  // So that this thread's next wait does not find it.
  uint64_t written;
  while (woken_ && read(wake_, &written, sizeof(written)) < 0 && errno == EINTR) {
  }
}

}  // namespace millrace
