// The one queue that all events of a transport arrive on, and the threads that wait at it.
#pragma once

#include <grpc/grpc.h>

#include <atomic>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"

namespace millrace::net {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// What a tag of gRPC's points to. One operation at a time.
//
// gRPC is not instrumented: ThreadSanitizer sees neither how it hands an event to another thread nor that an answer comes after its
// request. In its builds every event therefore happens after all operations that were started before it.
class CompletionEvent {
 public:
  // The tag to start an operation with.
  void* Tag() {
    if constexpr (kThreadSanitizer) started_.fetch_add(1, std::memory_order_acq_rel);
    return this;
  }
  void Run(bool ok) {
    if constexpr (kThreadSanitizer) started_.load(std::memory_order_acquire);
    OnEvent(ok);
  }

 protected:
  ~CompletionEvent() = default;
  virtual void OnEvent(bool ok) = 0;

 private:
  static inline std::atomic<uint64_t> started_{0};
};

// An event that is a member of the object it concerns.
template <typename Owner, void (Owner::*kHandler)(bool ok)>
class MemberEvent final : public CompletionEvent {
 public:
  explicit MemberEvent(Owner* owner) : owner_(owner) {}

 private:
  void OnEvent(bool ok) override { (owner_->*kHandler)(ok); }
  Owner* const owner_;
};

// Thread-safe. One thread waits at the queue, and handles what it takes: nothing is handed on, since waking another thread costs more
// than a small call does. A second thread watches; when a handler runs long, it takes the place at the queue, and so on up to
// `max_threads`. What arrives while all of them are in handlers waits.
class CompletionQueue {
 public:
  explicit CompletionQueue(int max_threads);
  // Handles what is still to come: every operation must end soon. Not from a handler.
  ~CompletionQueue();

  grpc_completion_queue* get() const { return queue_; }
  // From a handler that is going to run long: another thread polls from now on, not only when that has been noticed.
  void HandlerRunsLong();

 private:
  void StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What each thread does.
  void Work();
  // Waits while another thread polls. False when there are threads enough: the caller's ends.
  bool Park() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns when a handler has run for long and nobody polls, or at the end.
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The polling thread leaves to handle an event: sees to it that somebody watches.
  void LeaveQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc_completion_queue* const queue_;
  const int max_threads_;
  Mutex mu_;
  CondVar watch_;
  CondVar spare_;
  CondVar ended_;
  bool polling_ ABSL_GUARDED_BY(mu_) = false;   // a thread waits at the queue
  bool watched_ ABSL_GUARDED_BY(mu_) = false;   // a thread is in Watch
  bool asleep_ ABSL_GUARDED_BY(mu_) = false;    // that thread waits to be woken by the next event
  bool replace_ ABSL_GUARDED_BY(mu_) = false;   // the next to poll need not wait for a handler to have run long
  bool closed_ ABSL_GUARDED_BY(mu_) = false;    // the queue has given its last event
  uint64_t taken_ ABSL_GUARDED_BY(mu_) = 0;     // events
  int short_ticks_ ABSL_GUARDED_BY(mu_) = 0;    // for so many the watching thread looks often
  int spares_ ABSL_GUARDED_BY(mu_) = 0;         // threads that neither poll nor watch nor handle
  int threads_ ABSL_GUARDED_BY(mu_) = 0;
  ThreadGroup group_;
};

}  // namespace millrace::net
