// The queue on which all events of a transport arrive, and the threads that poll it.
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

// The object behind a gRPC tag. Used for one operation at a time.
//
// gRPC is not instrumented, so ThreadSanitizer sees neither how it hands an event to another thread nor that an answer
// follows its request. In TSan builds every event therefore happens-after all operations that were started before it.
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

// An event that is a member of the object that handles it.
template <typename Owner, void (Owner::*kHandler)(bool ok)>
class MemberEvent final : public CompletionEvent {
 public:
  explicit MemberEvent(Owner* owner) : owner_(owner) {}

 private:
  void OnEvent(bool ok) override { (owner_->*kHandler)(ok); }
  Owner* const owner_;
};

// Thread-safe. One thread polls the queue and handles the events itself, since waking another thread costs more than a
// small call. A second thread watches; when a handler runs long, it takes over the polling, and so on up to
// `max_threads`. Events that arrive while all threads are in handlers wait.
class CompletionQueue {
 public:
  explicit CompletionQueue(int max_threads);
  // Handles the remaining events, so every operation must end soon. Must not run in a handler.
  ~CompletionQueue();

  grpc_completion_queue* get() const { return queue_; }
  // Called by a handler that is going to run long: another thread starts polling immediately.
  void HandlerRunsLong();

 private:
  void StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The body of each thread.
  void Work();
  // Waits while another thread polls. Returns false if there are enough threads; the caller's thread then ends.
  bool Park() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns when a handler has run for long and nobody polls, or at shutdown.
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Called when the polling thread leaves to handle an event: ensures that a thread watches.
  void LeaveQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc_completion_queue* const queue_;
  const int max_threads_;
  Mutex mu_;
  CondVar watch_;
  CondVar spare_;
  CondVar ended_;
  bool polling_ ABSL_GUARDED_BY(mu_) = false;  // a thread polls the queue
  bool watched_ ABSL_GUARDED_BY(mu_) = false;  // a thread is in Watch
  bool asleep_ ABSL_GUARDED_BY(mu_) = false;   // the watching thread sleeps until the next event
  bool replace_ ABSL_GUARDED_BY(mu_) = false;  // take over the polling now, not only after a handler has run long
  bool closed_ ABSL_GUARDED_BY(mu_) = false;   // the queue has given its last event
  uint64_t taken_ ABSL_GUARDED_BY(mu_) = 0;    // events
  int short_ticks_ ABSL_GUARDED_BY(mu_) = 0;   // how many more times the watching thread checks at short intervals
  int spares_ ABSL_GUARDED_BY(mu_) = 0;        // threads that neither poll nor watch nor handle
  int threads_ ABSL_GUARDED_BY(mu_) = 0;
  ThreadGroup group_;
};

}  // namespace millrace::net
