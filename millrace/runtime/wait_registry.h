// The registry of waits: what is blocked, on what, and since when.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"

namespace millrace {

// The kinds of resources that hang reports describe specifically; the others are kOther.
enum class ResourceKind : uint8_t {
  kOther,
  kQueue,
  kTokenQueue,  // gives each worker a token for its next step once the gradients of this one were applied
  kAccumulator,
  kBarrier,
  kStepGate,
};

struct Wait {
  enum class Kind {
    kOther,
    kTensor,    // a tensor from `peer`
    kElements,  // elements of `resource`, until something adds them
    kRoom,      // capacity in `resource`, until something removes elements
    kPeer,      // an action or a reply of `peer`
  };

  std::string node = {};  // the name of the node that waits; "session" for a wait outside steps
  std::string what = {};  // what it waits for: "1 element of FIFOQueue 'input' (0 of 32 elements)"
  int64_t step_id = 0;    // 0 if it belongs to no step
  absl::Time since = absl::InfinitePast();
  Kind kind = Kind::kOther;
  std::string peer = {};  // the task that is waited for
  std::string tensor = {};
  std::string resource = {};  // "FIFOQueue 'input'"
  ResourceKind resource_kind = ResourceKind::kOther;
  // How much of what is waited for exists, and how much is needed: 1 of 2 gradients, 0 of 1 elements; for kRoom, the
  // elements and the capacity. If `needs` is 0, it is not counted.
  int64_t has = 0;
  int64_t needs = 0;
};

// All waits of one task. Thread-safe. Operations that do not block do not use it.
class WaitRegistry {
 public:
  // Updates the progress of a wait when waits are listed: `what`, `has` and whatever else changes. Called on any
  // thread, without a lock of the registry, possibly after the wait has ended.
  using Describer = std::function<void(Wait*)>;

  explicit WaitRegistry(Clock* clock = Clock::Real()) : clock_(clock) {}

  // Registers a wait that begins now. Pass the result to End.
  uint64_t Begin(std::string node, std::string what, int64_t step_id) {
    return Begin({.node = std::move(node), .what = std::move(what), .step_id = step_id});
  }
  uint64_t Begin(Wait wait, Describer describe = nullptr);
  // A no-op if the wait has already ended.
  void End(uint64_t wait);
  // Oldest first.
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
