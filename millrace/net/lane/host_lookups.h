// The addresses of hosts, without waiting longer for them than one wants to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/status.h"
#include "millrace/net/lane/lane_transport.h"

namespace millrace::net {

// A name server that does not answer holds whoever asks the system for a host, and nothing ends that early. So a thread of its own asks, and who
// waits for the answer may go: the thread ends when the system lets it, and uses nothing that ends before. While it runs, all who want the same host
// wait for it: there is never more than one for each host.
//
// Thread-safe.
class HostLookups {
 public:
  // Null: as the system does it.
  explicit HostLookups(HostResolver resolver = nullptr);
  ~HostLookups();

  // At least one, as text. An address is its own, at once. DEADLINE_EXCEEDED, CANCELLED when `stop` becomes readable first, and UNAVAILABLE for a
  // host that is not known.
  StatusOr<std::vector<std::string>> Find(const std::string& host, absl::Time deadline, int stop);

 private:
  struct Lookup;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace millrace::net
