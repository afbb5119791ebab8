// The one queue that all events of a transport arrive on, and the threads that wait at it.
#pragma once

#include <grpc/grpc.h>

#include <atomic>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"

namespace millrace::net {

// What a tag of gRPC's points to. One operation at a time.
class CompletionEvent {
 public:
  // The tag to start an operation with. gRPC is not instrumented: what ThreadSanitizer sees of the hand-off from the thread that
  // starts the operation to the one that handles it is this store and the load in Run.
  void* Tag() {
    started_.store(true, std::memory_order_release);
    return this;
  }
  void Run(bool ok) {
    started_.load(std::memory_order_acquire);
    OnEvent(ok);
  }

 protected:
  ~CompletionEvent() = default;
  virtual void OnEvent(bool ok) = 0;

 private:
  std::atomic<bool> started_{false};
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

// Thread-safe. The thread that takes an event handles it: nothing is handed on, since a hand-off costs more than a small call does.
// While a handler runs another thread waits at the queue, up to `max_threads`.
class CompletionQueue {
 public:
  explicit CompletionQueue(int max_threads);
  // Handles what is still to come: every operation must end soon. Not from a handler.
  ~CompletionQueue();

  grpc_completion_queue* get() const { return queue_; }

 private:
  void Poll();
  // A poller has left to handle an event: sees to it that another one waits.
  void LeaveToHandle();
  bool StartPoller() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc_completion_queue* const queue_;
  const int max_threads_;
  Mutex mu_;
  int polling_ ABSL_GUARDED_BY(mu_) = 0;  // threads that wait at the queue, or are about to
  int threads_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar ended_;
  ThreadGroup group_;
};

}  // namespace millrace::net
