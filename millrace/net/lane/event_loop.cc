#include "millrace/net/lane/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "millrace/base/log.h"

namespace millrace::net {
namespace {

// The data of epoll events: a socket's id, or one of these.
constexpr uint64_t kWake = 0;
constexpr uint64_t kStop = ~uint64_t{0};
constexpr uint64_t kWrites = kStop - 1;
// How long all threads may be in handlers before another one is started.
constexpr absl::Duration kPatience = absl::Milliseconds(2);
// How long a thread that watches sockets may be busy with other work before other threads poll them too.
constexpr absl::Duration kWatchedPatience = absl::Milliseconds(20);
constexpr int kMostOwnThreads = 64;
// How long a spare thread stays, in milliseconds.
constexpr int kSpareThreadStays = 10'000;

void Signal(const Fd& fd) {
  const uint64_t one = 1;
  while (write(fd.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

}  // namespace

EventLoop::EventLoop(const std::string& name, int threads, int max_threads, TimerQueue* timers, Fd epoll, Fd writes,
                     Fd wake, Fd stop)
    : epoll_(std::move(epoll)),
      writes_(std::move(writes)),
      wake_(std::move(wake)),
      stop_(std::move(stop)),
      least_threads_(threads),
      most_threads_(max_threads),
      timers_(timers),
      threads_(name) {}

StatusOr<std::unique_ptr<EventLoop>> EventLoop::Start(const std::string& name, int threads, int max_threads,
                                                      TimerQueue* timers) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd writes(epoll_create1(EPOLL_CLOEXEC));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.ok() || !writes.ok() || !wake.ok() || !stop.ok())
    return ResourceExhausted("there are no file descriptors for a step lane: ", std::strerror(errno));
  for (const auto& [fd, data] :
       {std::make_pair(wake.get(), kWake), std::make_pair(writes.get(), kWrites), std::make_pair(stop.get(), kStop)}) {
    epoll_event event{};
    event.events = EPOLLIN;
    // Each event wakes one thread, not all.
    if (data != kStop) event.events |= EPOLLET;
    event.data.u64 = data;
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) return Internal("epoll_ctl: ", std::strerror(errno));
  }
  std::unique_ptr<EventLoop> loop(new EventLoop(name, threads, max_threads, timers, std::move(epoll), std::move(writes),
                                                std::move(wake), std::move(stop)));
  MutexLock lock(&loop->threads_mu_);
  while (loop->count_ < threads && loop->AddThread()) {
  }
  if (loop->count_ == 0) return ResourceExhausted("there are no threads for a step lane");
  return loop;
}

EventLoop::~EventLoop() {
  TimerQueue::Id timer, watched_timer;
  {
    MutexLock lock(&threads_mu_);
    stopping_ = true;
    timer = watching_ ? timer_ : 0;
    watched_timer = watched_timer_;
  }
  if (timer != 0) timers_->Cancel(timer);
  if (watched_timer != 0) timers_->Cancel(watched_timer);
  Signal(stop_);
}

bool EventLoop::AddThread() {
  if (!threads_.Start([this] { RunAsEventThread([this](EventThread* here) { Work(here); }); })) return false;
  ++count_;
  return true;
}

void EventLoop::Watch() {
  if (watching_ || stopping_ || count_ >= most_threads_) return;
  watching_ = true;
  timer_ = timers_->Schedule(kPatience, [this] { OnWatch(); });
}

void EventLoop::OnWatch() {
  MutexLock lock(&threads_mu_);
  if (stopping_) return;
  watching_ = false;
  if (waiting_.load() > 0) return;
  if (AddThread()) Watch();
}

bool EventLoop::Wait(uint64_t* data) {
  for (;;) {
    waiting_.fetch_add(1);
    epoll_event event;
    const int count = epoll_wait(epoll_.get(), &event, 1, kSpareThreadStays);
    const int error = errno;
    if (waiting_.fetch_sub(1) == 1) {
      MutexLock lock(&threads_mu_);
      Watch();
    }
    if (count == 1) {
      *data = event.data.u64;
      return true;
    }
    if (count < 0 && error != EINTR) {
      MR_LOG(Error, "epoll_wait: ", std::strerror(error));
      return false;
    }
    MutexLock lock(&threads_mu_);
    if (count_ <= least_threads_) continue;
    --count_;
    return false;
  }
}

uint64_t EventLoop::Add(RefPtr<EventHandler> handler) {
  MutexLock lock(&mu_);
  const uint64_t id = next_id_++;
  handlers_.emplace(id, std::move(handler));
  return id;
}

Status EventLoop::Arm(const Fd& epoll, uint64_t data, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events | EPOLLONESHOT;
  event.data.u64 = data;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_MOD, fd, &event) == 0) return absl::OkStatus();
  if (errno == ENOENT && epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return Internal("epoll_ctl: ", std::strerror(errno));
}

Status EventLoop::ArmRead(uint64_t id, int fd) { return Arm(epoll_, id, fd, EPOLLIN); }
Status EventLoop::ArmWrite(uint64_t id, int fd) { return Arm(writes_, id, fd, EPOLLOUT); }

void EventLoop::DisarmRead(uint64_t id, int fd) { Arm(epoll_, id, fd, 0).IgnoreError(); }

void EventLoop::WatchOver() {
  if (watched_work_.exchange(WatchedWork::kSome) != WatchedWork::kNoTimer) return;
  MutexLock lock(&threads_mu_);
  if (!stopping_) watched_timer_ = timers_->Schedule(kWatchedPatience, [this] { LookAfterWatched(); });
}

void EventLoop::LookAfterWatched() {
  // While there is work the timer reschedules itself, so that working threads need not wake its thread.
  WatchedWork none = WatchedWork::kNone;
  if (watched_work_.compare_exchange_strong(none, WatchedWork::kNoTimer)) return;
  watched_work_.store(WatchedWork::kNone);  // before looking, so that what is missed now is found the next time
  std::vector<RefPtr<EventHandler>> left_alone;
  {
    MutexLock lock(&mu_);
    for (const auto& [id, handler] : handlers_) {
      if (handler->left_alone()) left_alone.push_back(handler);
    }
  }
  for (const RefPtr<EventHandler>& handler : left_alone) handler->OnLeftAlone();
  {
    MutexLock lock(&event_threads_mu_);
    bool again = false;
    for (EventThread* thread : event_threads_) again |= thread->HandOverIfStuck();
    if (again) watched_work_.store(WatchedWork::kSome);
  }
  MutexLock lock(&threads_mu_);
  if (!stopping_) watched_timer_ = timers_->Schedule(kWatchedPatience, [this] { LookAfterWatched(); });
}

bool EventLoop::StartThread(Closure body) {
  MutexLock lock(&threads_mu_);
  if (stopping_ || own_threads_ == kMostOwnThreads) return false;
  ++own_threads_;
  const bool started = threads_.Start([this, body = std::move(body)]() mutable {
    RunAsEventThread([&body](EventThread* here) { body(here); });
    body = nullptr;
    MutexLock lock(&threads_mu_);
    --own_threads_;
  });
  if (!started) --own_threads_;
  return started;
}

void EventLoop::Remove(uint64_t id) {
  RefPtr<EventHandler> removed;  // released without the lock
  MutexLock lock(&mu_);
  const auto it = handlers_.find(id);
  if (it == handlers_.end()) return;
  removed = std::move(it->second);
  handlers_.erase(it);
}

void EventLoop::Post(Closure closure) {
  {
    MutexLock lock(&posted_mu_);
    posted_.push_back(std::move(closure));
    if (woken_) return;
    woken_ = true;
  }
  Signal(wake_);
}

void EventLoop::RunAsEventThread(absl::FunctionRef<void(EventThread*)> body) {
  EventThread here(EventThread::Kind::kServes, [this] { WatchOver(); });
  {
    MutexLock lock(&event_threads_mu_);
    event_threads_.push_back(&here);
  }
  body(&here);
  MutexLock lock(&event_threads_mu_);
  event_threads_.erase(std::find(event_threads_.begin(), event_threads_.end(), &here));
}

void EventLoop::RunPosted(EventThread* here) {
  for (;;) {
    Closure closure;
    bool wake = false;
    {
      MutexLock lock(&posted_mu_);
      if (posted_.empty()) return;
      closure = std::move(posted_.front());
      posted_.pop_front();
      // Another free thread takes the next closure in case this one runs long.
      wake = !posted_.empty() && !woken_;
      if (wake) woken_ = true;
    }
    if (wake) Signal(wake_);
    closure(here);
    closure = nullptr;
    here->RunLeft();
  }
}

RefPtr<EventHandler> EventLoop::Find(uint64_t id) {
  MutexLock lock(&mu_);
  const auto it = handlers_.find(id);
  return it == handlers_.end() ? nullptr : it->second;
}

void EventLoop::HandleWrites() {
  epoll_event event;
  while (epoll_wait(writes_.get(), &event, 1, 0) == 1) {
    if (const RefPtr<EventHandler> handler = Find(event.data.u64)) handler->OnWritable();
  }
}

void EventLoop::Work(EventThread* here) {
  for (;;) {
    RunPosted(here);
    uint64_t data;
    if (!Wait(&data)) return;
    if (data == kWake) {
      MutexLock lock(&posted_mu_);
      woken_ = false;
      continue;
    }
    if (data == kStop) {
      RunPosted(here);
      return;
    }
    if (data == kWrites) {
      HandleWrites();
      continue;
    }
    const RefPtr<EventHandler> handler = Find(data);
    if (!handler) continue;
    handler->OnReadable(here);
    here->RunLeft();
  }
}

}  // namespace millrace::net
