// Host name lookups with a deadline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/status.h"
#include "millrace/net/lane/lane_transport.h"

namespace millrace::net {

// The system's resolver blocks while a name server does not answer, and cannot be interrupted. So a separate thread
// calls it, and waiters may give up: the thread ends when the resolver returns, and uses nothing that may be destroyed
// before. All waiters for one host share one thread.
//
// Thread-safe.
class HostLookups {
 public:
  // Null uses the system's resolver.
  explicit HostLookups(HostResolver resolver = nullptr);
  ~HostLookups();

  // Returns at least one numeric address. A numeric host is returned as it is, without blocking. DEADLINE_EXCEEDED;
  // CANCELLED if `stop` becomes readable first; UNAVAILABLE for an unknown host.
  StatusOr<std::vector<std::string>> Find(const std::string& host, absl::Time deadline, int stop);

 private:
  struct Lookup;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace millrace::net
