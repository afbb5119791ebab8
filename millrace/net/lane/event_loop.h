// The threads of a lane transport and the sockets that they poll.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/affinity.h"
#include "millrace/base/event_thread.h"
#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/base/thread_group.h"
#include "millrace/base/timer.h"

namespace millrace::net {

// Several threads wait on one epoll set: an event wakes one of them, which handles it itself, so a long handler does
// not delay other events. If all threads have been in handlers for some time, more are started. Thread-safe.
class EventLoop {
 public:
  // Its argument is the thread that runs it.
  using Closure = EventThread::Closure;

  // Starts `threads` threads; temporarily there may be up to `max_threads`. `timers` must outlive it.
  static StatusOr<std::unique_ptr<EventLoop>> Start(const std::string& name, int threads, int max_threads,
                                                    TimerQueue* timers);
  // All sockets must have been removed. Runs the posted closures. Must not run on one of its threads.
  ~EventLoop();

  // Returns an id, never 0. No events are delivered before the first ArmRead. Each handler is called by one thread at a
  // time, and again only after it has been armed again (one-shot).
  uint64_t Add(RefPtr<EventHandler> handler);
  // Requests the next event; reading and writing are armed independently.
  Status ArmRead(uint64_t id, int fd);
  Status ArmWrite(uint64_t id, int fd);
  // Called when another thread watches the socket (see EventWatch): its events no longer wake a thread of this loop,
  // except for one that is already being delivered.
  void DisarmRead(uint64_t id, int fd);
  // Call it when such a thread turns to other work: if it does not return soon, OnLeftAlone of its handlers is called.
  // Likewise, if a thread of this loop is stuck, the closures that it has deferred go to their pools.
  void WatchOver();
  // Runs `body` on a dedicated thread, which must end before this object is destroyed. Returns false if there are too
  // many of these already.
  bool StartThread(Closure body);
  // True if there are at least as many dedicated threads as cores.
  bool crowded() const { return own_threads_.load(std::memory_order_relaxed) >= cores_; }
  // Call it before the descriptors are closed. Handlers that are running continue.
  void Remove(uint64_t id);

  // Runs `closure` soon on one of the threads, possibly the caller's own.
  void Post(Closure closure);

 private:
  EventLoop(const std::string& name, int threads, int max_threads, TimerQueue* timers, Fd epoll, Fd writes, Fd wake,
            Fd stop);
  void Work(EventThread* here);
  // Waits for an event. Returns false if there are too many threads and this one should end.
  bool Wait(uint64_t* data);
  // No thread waits for events: sets a timer to check again soon.
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads_mu_);
  void OnWatch();
  bool AddThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads_mu_);
  void RunPosted(EventThread* here);
  // Runs `body` with an EventThread that is registered in event_threads_.
  void RunAsEventThread(absl::FunctionRef<void(EventThread*)> body);
  void LookAfterWatched();
  static Status Arm(const Fd& epoll, uint64_t data, int fd, uint32_t events);
  RefPtr<EventHandler> Find(uint64_t id);
  // Calls OnWritable of all handlers whose sockets are writable.
  void HandleWrites();

  const Fd epoll_;
  const Fd writes_;  // the sockets that wait for room to write, an epoll set of its own within epoll_
  const Fd wake_;    // readable when a closure is posted
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
  // Whether watched sockets have been used since the timer that looks after them last ran.
  enum class WatchedWork { kNoTimer, kNone, kSome };
  std::atomic<WatchedWork> watched_work_{WatchedWork::kNoTimer};
  TimerQueue::Id watched_timer_ ABSL_GUARDED_BY(threads_mu_) = 0;
  const int cores_ = AllowedCoreCount();
  std::atomic<int> own_threads_{0};
  Mutex event_threads_mu_;
  std::vector<EventThread*> event_threads_ ABSL_GUARDED_BY(event_threads_mu_);
  ThreadGroup threads_;
};

}  // namespace millrace::net
