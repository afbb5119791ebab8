// One direction of a call that streams.
#pragma once

#include <deque>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/net/bytes.h"

namespace millrace::net {

// Hands messages to a handler in the order in which they came, one at a time, on a thread of the scheduler; with an inline one on that of
// whoever brings a message while nobody delivers. Thread-safe. No message is handed over while a lock is held.
class OrderedMessages {
 public:
  using Handler = absl::AnyInvocable<void(Bytes)>;

  // Once. What came before waits for it.
  void SetHandler(Handler handler, Scheduler* scheduler, RefPtr<const RefCounted> keep);
  // `keep` owns this object, and stays until the message is delivered.
  void Add(Bytes message, Scheduler* scheduler, RefPtr<const RefCounted> keep);
  // Nothing more comes: `last`, if any, is called behind the messages, or, with `drop`, in the place of those that are still here. Once.
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
  Handler handler_;  // of whoever delivers
};

}  // namespace millrace::net
