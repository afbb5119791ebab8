// Every wait has a name: what is blocked, on what, since when.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"

namespace millrace {

struct Wait {
  enum class Kind {
    kOther,
    kTensor,    // of `peer`
    kElements,  // of `resource`, which somebody must bring
    kRoom,      // in `resource`, which somebody must make by taking
    kPeer,      // until `peer` has done or answered something
  };

  std::string node = {};  // who waits: the node's name; "session" for what a process waits for outside of steps
  std::string what = {};  // for what: "1 element of FIFOQueue 'input' (0 of 32 elements)"
  int64_t step_id = 0;    // 0: of no step
  absl::Time since = absl::InfinitePast();
  Kind kind = Kind::kOther;
  std::string peer = {};      // the task that it is to come from
  std::string tensor = {};
  std::string resource = {};  // "FIFOQueue 'input'"
  // How much there is of what is waited for: 1 of 2 gradients, 0 of 1 elements; of kRoom elements and capacity. `needs` 0: not counted.
  int64_t has = 0;
  int64_t needs = 0;
};

// All that one task is waiting for. Thread-safe; only what really blocks pays for it.
class WaitRegistry {
 public:
  // Says how far a wait has come, when waits are listed: `what`, `has` and what else changes. Called without a lock of the registry's, by any
  // thread, perhaps when the wait is over.
  using Describer = std::function<void(Wait*)>;

  explicit WaitRegistry(Clock* clock = Clock::Real()) : clock_(clock) {}

  // Notes a wait that begins now; the number ends it.
  uint64_t Begin(std::string node, std::string what, int64_t step_id) {
    return Begin({.node = std::move(node), .what = std::move(what), .step_id = step_id});
  }
  uint64_t Begin(Wait wait, Describer describe = nullptr);
  // No effect for a number that was ended before.
  void End(uint64_t wait);
  // The oldest first.
  std::vector<Wait> List() const;

  absl::Time Now() const { return clock_->Now(); }

 private:
  struct Entry {
    Wait wait;
    Describer describe;
  };

  Clock* const clock_;
  mutable Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<uint64_t, Entry> waits_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
