// One direction of a streaming call.
#pragma once

#include <deque>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/net/bytes.h"

namespace millrace::net {

// Delivers messages to a handler in order, one at a time, on a thread of the scheduler. With an inline scheduler, the
// thread that adds a message delivers it, unless another thread is delivering. Thread-safe. No lock is held during a
// delivery.
class OrderedMessages {
 public:
  using Handler = absl::AnyInvocable<void(Bytes)>;

  // Called once. Messages that came before wait for it.
  void SetHandler(Handler handler, Scheduler* scheduler, RefPtr<const RefCounted> keep);
  // `keep` owns this object and is held until the message is delivered.
  void Add(Bytes message, Scheduler* scheduler, RefPtr<const RefCounted> keep);
  // Ends the stream; called once. `last`, if any, is called after the messages. With `drop`, messages that have not
  // been delivered are dropped first.
  void End(bool drop, absl::AnyInvocable<void()> last, Scheduler* scheduler, RefPtr<const RefCounted> keep);

 private:
  void Begin(Scheduler* scheduler, RefPtr<const RefCounted> keep) ABSL_LOCKS_EXCLUDED(mu_);
  void Deliver();

  Mutex mu_;
  std::deque<Bytes> waiting_ ABSL_GUARDED_BY(mu_);
  bool has_handler_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;
  absl::AnyInvocable<void()> last_ ABSL_GUARDED_BY(mu_);
  Handler handler_;  // used by the delivering thread
};

}  // namespace millrace::net
