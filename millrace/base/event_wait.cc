#include "millrace/base/event_wait.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "millrace/base/fd.h"
#include "millrace/base/lookout.h"

namespace millrace {
namespace {

// A thread that has more of them is not one that waits for a few answers.
constexpr size_t kMostWatched = 8;
// Who has waited for so long, in milliseconds, may as well be woken by another thread.
constexpr int kPatience = 2;

struct ThisThread {
  EventWatch* watch = nullptr;
  EventWait* wait = nullptr;
  Fd wake;  // made when it is needed first
  Lookout lookout;
};

ThisThread& This() {
  static thread_local ThisThread thread;
  return thread;
}

// As poll(2), but this thread stays awake for what may be about to come.
int Poll(pollfd* fds, nfds_t count, int timeout) {
  Lookout& lookout = This().lookout;
  const bool look = timeout != 0 && lookout.worthwhile();
  const Lookout::Clock::time_point begin = Lookout::Clock::now();
  int ready = 0;
  while (look && ready == 0 && Lookout::Clock::now() - begin < Lookout::kLimit) ready = poll(fds, count, 0);
  if (ready == 0) ready = poll(fds, count, timeout);
  lookout.Waited(Lookout::Clock::now() - begin, look);
  return ready;
}

}  // namespace

// ---- EventWatch

EventWatch::EventWatch() : outer_(This().watch) {
  if (outer_ != nullptr) outer_->GiveBack();
  This().watch = this;
}

EventWatch::~EventWatch() {
  GiveBack();
  This().watch = outer_;
}

EventWatch* EventWatch::Here() { return This().watch; }

bool EventWatch::Add(RefPtr<EventHandler> handler, int fd) {
  if (watched_.size() == kMostWatched || handler->watched_.exchange(true)) return false;
  watched_.push_back({std::move(handler), fd});
  return true;
}

bool EventWatch::Has(const EventHandler* handler) const {
  return std::any_of(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.handler.get() == handler; });
}

void EventWatch::Forget(const EventHandler* handler) {
  const auto it = std::find_if(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.handler.get() == handler; });
  if (it == watched_.end()) return;
  it->handler->watched_.store(false);
  watched_.erase(it);
}

void EventWatch::GiveBack() {
  for (const Watched& w : std::exchange(watched_, {})) {
    w.handler->watched_.store(false);
    w.handler->OnGivenBack();
  }
}

bool EventWatch::HandleEvents(int timeout, int wake) {
  pollfd fds[kMostWatched + 1];
  nfds_t count = 0;
  for (const Watched& w : watched_) {
    fds[count++] = {.fd = w.fd, .events = POLLIN, .revents = 0};
    w.handler->waited_for_.store(true);
  }
  fds[count] = {.fd = wake, .events = POLLIN, .revents = 0};  // passed over when negative
  int ready;
  do {
    ready = Poll(fds, count + 1, timeout);
  } while (ready < 0 && errno == EINTR);
  for (const Watched& w : watched_) w.handler->waited_for_.store(false);
  if (ready <= 0 || fds[count].revents != 0) return false;
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].revents == 0) continue;
    // What came before may have given it back.
    const auto it = std::find_if(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.fd == fds[i].fd; });
    if (it == watched_.end()) continue;
    const RefPtr<EventHandler> handler = it->handler;
    handler->OnReadable();
  }
  return true;
}

// ---- EventWait

EventWait::EventWait() : outer_(This().wait) { This().wait = this; }

EventWait::~EventWait() { This().wait = outer_; }

EventWait* EventWait::Here() { return This().wait; }

void EventWait::Notify() {
  MutexLock lock(&mu_);  // to the end: the waiting thread cannot go before
  done_ = true;
  if (asleep_ == Asleep::kAtCondition) notified_.Signal();
  if (asleep_ != Asleep::kAtDescriptors || Here() == this) return;
  woken_ = true;
  const uint64_t one = 1;
  while (write(wake_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void EventWait::Wait() {
  Fd& wake = This().wake;
  if (!watch_.empty() && !wake.ok()) wake = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  bool soon = wake.ok();
  while (soon && !watch_.empty()) {
    {
      MutexLock lock(&mu_);
      if (done_) break;
      asleep_ = Asleep::kAtDescriptors;
      wake_ = wake.get();
    }
    soon = watch_.HandleEvents(kPatience, wake.get());
    MutexLock lock(&mu_);
    asleep_ = Asleep::kNo;
  }
  watch_.GiveBack();
  MutexLock lock(&mu_);
  asleep_ = Asleep::kAtCondition;
  while (!done_) notified_.Wait(&mu_);
  // Not to be found by this thread's next wait.
  uint64_t written;
  while (woken_ && read(wake_, &written, sizeof(written)) < 0 && errno == EINTR) {
  }
}

}  // namespace millrace
