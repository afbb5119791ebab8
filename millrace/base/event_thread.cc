#include "millrace/base/event_thread.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "millrace/base/lookout.h"

namespace millrace {
namespace {

// A thread with more descriptors than this is not one that waits for a few answers.
constexpr size_t kMostWatched = 8;

// poll(2) with adaptive spinning. The statistics of earlier waits are per thread, because a caller's next wait is
// another object.
int Poll(pollfd* fds, nfds_t count, int timeout) {
  static thread_local Lookout lookout;
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

bool EventWatch::Add(RefPtr<EventHandler> handler, int fd) {
  if (watched_.size() == kMostWatched || handler->watched_.exchange(true)) return false;
  watched_.push_back({std::move(handler), fd});
  return true;
}

bool EventWatch::Has(const EventHandler* handler) const {
  return std::any_of(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.handler.get() == handler; });
}

void EventWatch::Forget(const EventHandler* handler) {
  const auto it =
      std::find_if(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.handler.get() == handler; });
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

bool EventWatch::HandleEvents(EventThread* here, int timeout, int wake) {
  pollfd fds[kMostWatched + 1];
  nfds_t count = 0;
  for (const Watched& w : watched_) {
    fds[count++] = {.fd = w.fd, .events = POLLIN, .revents = 0};
    w.handler->waited_for_.store(true);
  }
  fds[count] = {.fd = wake, .events = POLLIN, .revents = 0};  // ignored if negative
  int ready;
  do {
    ready = Poll(fds, count + 1, timeout);
  } while (ready < 0 && errno == EINTR);
  for (const Watched& w : watched_) w.handler->waited_for_.store(false);
  if (ready <= 0 || fds[count].revents != 0) return false;
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].revents == 0) continue;
    // An earlier handler may have given it back.
    const auto it = std::find_if(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.fd == fds[i].fd; });
    if (it == watched_.end()) continue;
    const RefPtr<EventHandler> handler = it->handler;
    handler->OnReadable(here);
  }
  return true;
}

// ---- EventThread

void EventThread::RunNext(Scheduler* pool, Closure closure) {
  if (pool == Scheduler::Inline()) return closure(this);
  if (awaits_answer()) return pool->Schedule([closure = std::move(closure)]() mutable { closure(nullptr); });
  {
    MutexLock lock(&mu_);
    left_.push_back({pool, std::move(closure)});
  }
  if (on_left_ != nullptr) on_left_();
}

bool EventThread::TakeNext(Next* next) {
  MutexLock lock(&mu_);
  seen_ = false;
  if (first_ == left_.size()) return false;
  *next = std::move(left_[first_++]);
  if (first_ == left_.size()) {
    left_.clear();
    first_ = 0;
  }
  return true;
}

void EventThread::RunLeft() {
  Next next;
  while (TakeNext(&next)) std::exchange(next.closure, nullptr)(this);
}

void EventThread::ScheduleAll(std::vector<Next> left) {
  for (Next& next : left) {
    if (next.closure == nullptr) continue;  // already taken
    next.pool->Schedule([closure = std::move(next.closure)]() mutable { closure(nullptr); });
  }
}

void EventThread::HandOver() {
  watch_.GiveBack();
  std::vector<Next> left;
  {
    MutexLock lock(&mu_);
    if (first_ == left_.size()) return;
    left.swap(left_);
    first_ = 0;
    seen_ = false;
  }
  ScheduleAll(std::move(left));
}

bool EventThread::HandOverIfStuck() {
  std::vector<Next> left;
  {
    MutexLock lock(&mu_);
    if (first_ == left_.size()) return false;
    if (!std::exchange(seen_, true)) return true;
    left.swap(left_);
    first_ = 0;
    seen_ = false;
  }
  ScheduleAll(std::move(left));
  return false;
}

}  // namespace millrace
