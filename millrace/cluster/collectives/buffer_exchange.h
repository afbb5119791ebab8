// Where the buffers of collective ops meet: a member offers one under a key, another asks for it, in either order.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/net/bytes.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

// Part of the keys of buffers that nobody offers: whoever asks for one learns when the step has failed.
inline constexpr char kWatchKey[] = ":watch:";

// The buffers that the devices of one task offer, in all steps. Thread-safe; no callback is called with a lock held.
//
// A key is used once in a step. When a step has failed, everything that waits in it, and whatever comes later, gets the
// reason: that is how the members of a group that other masters run learn of it.
class BufferExchange {
 public:
  using Taken = absl::AnyInvocable<void(Status)>;
  using Got = absl::AnyInvocable<void(StatusOr<net::Bytes>)>;
  // Requests that wait, and failed steps that are remembered.
  static constexpr size_t kMaxRequests = 1 << 16;
  static constexpr size_t kMaxFailedSteps = 1 << 12;

  explicit BufferExchange(Clock* clock = Clock::Real()) : clock_(clock) {}

  // Calls `taken` once: with OK when the receiver has read the bytes, or given them to its transport, which keeps their
  // owners alive.
  void Offer(int64_t step_id, const std::string& key, net::Bytes bytes, Taken taken);

  struct Request {
    int64_t step_id = 0;
    std::string key = {};
    int64_t size = 0;                // in bytes; INVALID_ARGUMENT if the buffer has another size
    std::string receiver = {};       // the device, for messages
    Scheduler* scheduler = nullptr;  // where `got` is called if the request had to wait; null: where the offer is made
  };
  // Calls `got` once. Returns a number for Withdraw if the request waits, else 0. RESOURCE_EXHAUSTED if too many wait.
  uint64_t Ask(Request request, Got got);
  // Ends the request with `why`; a no-op if it has ended.
  void Withdraw(int64_t step_id, const std::string& key, uint64_t request, const Status& why);

  // Ends everything that waits in the step, and whatever comes later, with `why`.
  void FailStep(int64_t step_id, const Status& why);
  // The same for all steps: the task is going down.
  void Shutdown(const Status& why);

  // The requests that wait for an offer. Those of this task's own ops are listed by the ops.
  void ListWaits(std::vector<Wait>* waits) const;
  // How many offers and requests wait.
  size_t size() const;

 private:
  struct Parked {
    // An offer has `taken`, a request has `got`.
    net::Bytes bytes = {};
    Taken taken = nullptr;
    Request request = {};
    Got got = nullptr;
    uint64_t id = 0;
    absl::Time since = absl::InfinitePast();
  };
  using Key = std::pair<int64_t, std::string>;

  static void End(Parked parked, const Status& why);
  // OK, or the reason why nothing waits in the step any more.
  Status Failed(int64_t step_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteFailed(int64_t step_id, const Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Clock* const clock_;
  mutable Mutex mu_;
  Status down_ ABSL_GUARDED_BY(mu_);
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  size_t requests_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<int64_t, absl::flat_hash_map<std::string, Parked>> steps_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<int64_t, Status> failed_ ABSL_GUARDED_BY(mu_);
  std::deque<int64_t> failed_order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
