// Threads that handle events: the descriptors that such a thread polls, and the work that it continues itself instead
// of waking another thread.
#pragma once

#include <atomic>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/thread_pool.h"

namespace millrace {

class EventThread;

// Handles the events of a descriptor.
class EventHandler : public RefCounted {
 public:
  // `here` is the calling thread.
  virtual void OnReadable(EventThread* here) = 0;
  virtual void OnWritable() {}
  // The thread that watched the descriptor (see EventWatch) has stopped; another thread must poll it from now on.
  // Called on that thread, which may hold locks.
  virtual void OnGivenBack() {}
  // The thread that watches the descriptor has been busy with other work for a while; other threads should poll it as
  // well. Called on any thread.
  virtual void OnLeftAlone() {}

  bool watched() const { return watched_.load(); }
  bool left_alone() const { return watched_.load() && !waited_for_.load(); }

 private:
  friend class EventWatch;
  std::atomic<bool> watched_{false};
  std::atomic<bool> waited_for_{false};  // the thread that watches it is polling now
};

// The descriptors that one thread watches (polls itself), instead of the threads that poll for everybody: an event
// wakes only this thread, which also continues the work that the event allows. Used by that thread only.
class EventWatch {
 public:
  EventWatch() = default;
  ~EventWatch() { GiveBack(); }
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;

  // Returns false if another thread watches it already or this thread watches too many. If true, nobody else needs to
  // poll the descriptor until OnGivenBack.
  bool Add(RefPtr<EventHandler> handler, int fd);
  bool Has(const EventHandler* handler) const;
  bool empty() const { return watched_.empty(); }
  // Stops watching a descriptor that has no more events, without calling OnGivenBack.
  void Forget(const EventHandler* handler);
  void GiveBack();

  // Waits for events and handles them; `here` is the calling thread. Returns false if there was none for `timeout`
  // milliseconds (negative: no limit) or the descriptor `wake` became readable (negative: none).
  bool HandleEvents(EventThread* here, int timeout, int wake = -1);

 private:
  struct Watched {
    RefPtr<EventHandler> handler;
    int fd;
  };

  std::vector<Watched> watched_;
};

// An object on the stack of a thread that handles events; it is passed down to the handlers. Code on this thread that
// is about to work for long (some 100 us or more) or to block calls HandOver first, so that other threads take over the
// descriptors that this thread watches and the closures that it has deferred. Kernels reach it through their step
// (ThreadHandover).
//
// A missing HandOver costs time, never progress: after a while other threads poll the neglected sockets and run the
// stuck closures (EventLoop::WatchOver in net/lane).
class EventThread {
 public:
  enum class Kind {
    kServes,        // belongs to a transport: it continues the work that an event allows
    kAwaitsAnswer,  // belongs to a caller: it reads its own answers and runs nothing for others
  };
  // `here` is the thread that runs it; null if a pool runs it.
  using Closure = absl::AnyInvocable<void(EventThread* here)>;

  // `on_left` (may be empty) is called on this thread when a closure is deferred.
  explicit EventThread(Kind kind, absl::AnyInvocable<void()> on_left = nullptr)
      : kind_(kind), on_left_(std::move(on_left)) {}
  ~EventThread() { HandOver(); }
  EventThread(const EventThread&) = delete;
  EventThread& operator=(const EventThread&) = delete;

  bool awaits_answer() const { return kind_ == Kind::kAwaitsAnswer; }

  // The methods below are for the thread itself.
  EventWatch* watch() { return &watch_; }
  // Runs `closure` soon. A thread that kServes defers it until the current event has been handled, because waking
  // another thread costs microseconds and the data are in this core's cache; after a HandOver it runs on `pool`. A
  // thread that kAwaitsAnswer schedules it on `pool`.
  void RunNext(Scheduler* pool, Closure closure);
  // Moves the deferred closures to their pools and stops watching descriptors (OnGivenBack).
  void HandOver();
  // Called when the event has been handled: runs the deferred closures in order, including those that they defer.
  void RunLeft();

  // Called periodically on any thread: moves closures to their pools if none was run since the previous call. Returns
  // true while closures are deferred, so that it must be called again.
  bool HandOverIfStuck();

 private:
  struct Next {
    Scheduler* pool;
    Closure closure;
  };
  bool TakeNext(Next* next);
  void ScheduleAll(std::vector<Next> left);

  const Kind kind_;
  absl::AnyInvocable<void()> on_left_;
  EventWatch watch_;
  Mutex mu_;
  std::vector<Next> left_ ABSL_GUARDED_BY(mu_);
  size_t first_ ABSL_GUARDED_BY(mu_) = 0;   // the closures before this index have been taken
  bool seen_ ABSL_GUARDED_BY(mu_) = false;  // HandOverIfStuck was called since the last closure was taken
};

}  // namespace millrace
