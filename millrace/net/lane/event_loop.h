// The threads of a transport, and the sockets that they wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/affinity.h"
#include "millrace/base/event_wait.h"
#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/base/thread_group.h"
#include "millrace/base/timer.h"

namespace millrace::net {

// Several threads that all wait for the same sockets: an event wakes one of them, which handles it. Nothing is handed on, and a
// handler that runs long holds nobody back. When all of them are in handlers for some time, there will be more. Thread-safe.
class EventLoop {
 public:
  using Closure = absl::AnyInvocable<void()>;

  // `threads` of them, and up to `max_threads` for a while. `timers` outlive it.
  static StatusOr<std::unique_ptr<EventLoop>> Start(const std::string& name, int threads, int max_threads, TimerQueue* timers);
  // Every socket has been removed. Runs what was posted. Not from one of its threads.
  ~EventLoop();

  // Its id, never 0. Events before the first ArmRead wait. Each handler is called by one thread at a time, and not again before it is armed again.
  uint64_t Add(RefPtr<EventHandler> handler);
  // Once more. A writing socket has a descriptor of its own, a duplicate, so that the two do not disturb each other.
  Status ArmRead(uint64_t id, int fd);
  Status ArmWrite(uint64_t id, int fd);
  // A thread watches it in place of these (see EventWatch): its events wake nobody here, unless one has begun to.
  void DisarmRead(uint64_t id, int fd);
  // Such a thread goes on to other work: should it not come back soon, its handlers are told that they are left alone.
  void WatchOver();
  // Runs it on a thread of its own, which ends before this does. False: there are enough of those already.
  bool StartThread(Closure body);
  // There are as many of them as cores.
  bool crowded() const { return own_threads_.load(std::memory_order_relaxed) >= cores_; }
  // Calls that have begun go on. Before the descriptors are closed.
  void Remove(uint64_t id);

  // Runs it on one of the threads soon: the caller's own, when it is one of them and has nothing else to do first.
  void Post(Closure closure);

 private:
  EventLoop(const std::string& name, int threads, int max_threads, TimerQueue* timers, Fd epoll, Fd wake, Fd stop);
  void Work();
  // Waits for an event. False: this thread is one too many.
  bool Wait(uint64_t* data);
  // Nobody waits for events: looks again in a moment.
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads_mu_);
  void OnWatch();
  bool AddThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads_mu_);
  void RunPosted();
  void LookAfterWatched();
  Status Arm(uint64_t data, int fd, uint32_t events);

  const Fd epoll_;
  const Fd wake_;  // something is posted
  const Fd stop_;
  Mutex mu_;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<uint64_t, RefPtr<EventHandler>> handlers_ ABSL_GUARDED_BY(mu_);
  Mutex posted_mu_;
  std::deque<Closure> posted_ ABSL_GUARDED_BY(posted_mu_);
  bool woken_ ABSL_GUARDED_BY(posted_mu_) = false;

  const int least_threads_;
  const int most_threads_;
  TimerQueue* const timers_;
  std::atomic<int> waiting_{0};  // threads that wait for events
  Mutex threads_mu_;
  int count_ ABSL_GUARDED_BY(threads_mu_) = 0;
  bool watching_ ABSL_GUARDED_BY(threads_mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(threads_mu_) = false;
  TimerQueue::Id timer_ ABSL_GUARDED_BY(threads_mu_) = 0;
  // Since the timer that looks after watched sockets last did.
  enum class WatchedWork { kNoTimer, kNone, kSome };
  std::atomic<WatchedWork> watched_work_{WatchedWork::kNoTimer};
  TimerQueue::Id watched_timer_ ABSL_GUARDED_BY(threads_mu_) = 0;
  const int cores_ = AllowedCoreCount();
  std::atomic<int> own_threads_{0};
  ThreadGroup threads_;
};

}  // namespace millrace::net
