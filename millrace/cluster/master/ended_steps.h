// Failed steps whose end a peer has not acknowledged.
//
// A peer's part of a step is cancelled when the step fails. If that message is lost, the part waits on, for instance
// for a gradient, and would take it from those who come later. So the master names these steps again when it next makes
// a session there (CreateWorkerSession), before anybody can use the session.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/worker/peers.h"

namespace millrace {

// Of one master. Thread-safe.
class EndedSteps : public std::enable_shared_from_this<EndedSteps> {
 public:
  // Tells the peer that the step has ended, and remembers the step until it answers.
  void Tell(const Peer& peer, int64_t step_id);
  // The steps that the peer at this address may not know to have ended, oldest first.
  std::vector<int64_t> Of(const std::string& address) const;
  void Acknowledged(const std::string& address, const std::vector<int64_t>& steps);

 private:
  // Of one peer; earlier ones are forgotten. A peer that is away for longer ends the parts itself (session leases).
  static constexpr size_t kMost = 1000;

  mutable Mutex mu_;
  absl::flat_hash_map<std::string, std::deque<int64_t>> steps_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
