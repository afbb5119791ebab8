// The outgoing calls of a transport that have not ended.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"

namespace millrace::net {

// Lets a transport's destructor wait for its calls. Thread-safe.
class CallsInFlight {
 public:
  // Returns false once CancelAllAndWait has begun; the call must not be started then.
  [[nodiscard]] bool Add(OutgoingCall* call);
  // The call has ended. Its owner may be destroyed after this.
  void Remove(OutgoingCall* call);
  // Cancels all calls and returns when they have ended. Must not be called from one of their handlers.
  void CancelAllAndWait();

 private:
  Mutex mu_;
  CondVar empty_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<OutgoingCall*> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
