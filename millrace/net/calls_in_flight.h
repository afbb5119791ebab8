// The calls that a transport has made and that are not over.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"

namespace millrace::net {

// So that a transport's end can wait for theirs. Thread-safe.
class CallsInFlight {
 public:
  // False after CancelAllAndWait has begun: the call must not start.
  [[nodiscard]] bool Add(OutgoingCall* call);
  // It is over. Its owner may be gone after this.
  void Remove(OutgoingCall* call);
  // Returns when all are over. Not from one of their handlers.
  void CancelAllAndWait();

 private:
  Mutex mu_;
  CondVar empty_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<OutgoingCall*> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
