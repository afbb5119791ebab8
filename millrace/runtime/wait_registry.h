// Every wait has a name: what is blocked, on what, since when.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"

namespace millrace {

struct Wait {
  std::string node;  // who waits: the node's name
  std::string what;  // for what: "1 element from queue 'input' (FIFOQueue, 0 of 32 elements)"
  int64_t step_id = 0;
  absl::Time since = absl::InfinitePast();
};

// All that one task is waiting for. Thread-safe; only what really blocks pays for it.
class WaitRegistry {
 public:
  explicit WaitRegistry(Clock* clock = Clock::Real()) : clock_(clock) {}

  // Notes a wait that begins now; the number ends it.
  uint64_t Begin(std::string node, std::string what, int64_t step_id);
  // Says anew what is waited for: part of it came. No effect for a number that was ended before.
  void Describe(uint64_t wait, std::string what);
  // No effect for a number that was ended before.
  void End(uint64_t wait);
  // The oldest first.
  std::vector<Wait> List() const;

 private:
  Clock* const clock_;
  mutable Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<uint64_t, Wait> waits_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
