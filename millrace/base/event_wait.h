// Waits for an answer on a thread that may read the answer itself, instead of being woken by another thread that read
// it.
#pragma once

#include <thread>

#include "millrace/base/event_thread.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_handover.h"

namespace millrace {

// Lives on the waiting thread's stack, from before the request until the answer. The request carries handover(),
// through which the transport may let this thread poll the connection while it waits, as long as answers come soon.
class EventWait {
 public:
  EventWait() = default;
  EventWait(const EventWait&) = delete;
  EventWait& operator=(const EventWait&) = delete;

  // The answer has arrived. Call it once, on any thread.
  void Notify();
  // Blocks until Notify. Call it on the thread that created this object.
  void Wait();

  // The handover that this thread has entered; handover()->Here() is its EventThread.
  const RefPtr<ThreadHandover>& handover() const { return handover_; }

 private:
  enum class Asleep { kNo, kAtDescriptors, kAtCondition };

  EventThread thread_{EventThread::Kind::kAwaitsAnswer};
  const RefPtr<ThreadHandover> handover_ = MakeRef<ThreadHandover>();
  const ThreadHandover::Entry entry_{handover_, &thread_};
  const std::thread::id id_ = std::this_thread::get_id();
  Mutex mu_;
  CondVar notified_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  Asleep asleep_ ABSL_GUARDED_BY(mu_) = Asleep::kNo;
  int wake_ ABSL_GUARDED_BY(mu_) = -1;  // the descriptor that interrupts the thread's poll
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace millrace
