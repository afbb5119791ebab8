// What the members of a group do together: the instances of its collective ops.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/collectives/device_group.h"
#include "millrace/runtime/collective_executor.h"

namespace millrace {

struct InstanceRequest {
  int32_t instance_key = 0;
  int64_t step_id = 0;  // 0: the instance is the same in all steps
  CollectiveKind kind = CollectiveKind::kReduce;
  DType dtype = DType::kInvalid;
  Shape shape = {};
  std::string device = {};  // the member that asks
  bool is_source = false;
};

// The instances of one group. The first member that asks for an instance says what it is; the others must agree. A
// broadcast is known when all members have asked, because only then its source is. Thread-safe.
class InstanceTable {
 public:
  // Gets the rank of the source, -1 unless it is a broadcast.
  using Done = absl::AnyInvocable<void(StatusOr<int>)>;
  // The instances that are remembered; of more, the oldest are forgotten.
  static constexpr size_t kMaxInstances = 1 << 16;

  explicit InstanceTable(std::shared_ptr<const DeviceGroup> group) : group_(std::move(group)) {}

  // Calls `done` once, without a lock, on any thread: with INVALID_ARGUMENT ("Shape mismatch") or INTERNAL (another
  // kind or type) if the members disagree, with INTERNAL if a broadcast has no source or two. Returns a number for
  // Leave if it has to wait, else 0.
  uint64_t Resolve(const InstanceRequest& request, Done done);
  // Ends a wait with `why`; a no-op if it has ended.
  void Leave(const InstanceRequest& request, uint64_t waiter, const Status& why);

  // Ends all waits with `why`: the group is no more, or is formed again.
  void End(const Status& why);

  // The rank of the source if the instance is known here; `agrees` is the result of comparing it with the request.
  bool Find(const InstanceRequest& request, StatusOr<int>* result) const;
  // Remembers what the group's leader said.
  void Learn(const InstanceRequest& request, int source_rank);

  // What a member that waits is waiting for: "2 of 3 devices".
  std::string Progress(const InstanceRequest& request) const;

 private:
  using Key = std::pair<int32_t, int64_t>;
  struct Instance {
    CollectiveKind kind;
    DType dtype;
    Shape shape;
    int source_rank = -1;
    std::vector<bool> asked = {};  // by rank; empty unless it is a broadcast
    int count = 0;                 // of members that have asked
    std::vector<std::pair<uint64_t, Done>> waiting = {};
  };
  static Key KeyOf(const InstanceRequest& request) { return {request.instance_key, request.step_id}; }
  static Status Compare(const Instance& instance, const InstanceRequest& request);
  Instance& FindOrAdd(const InstanceRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that a member of a broadcast has asked; an error concerns all members.
  Status Ask(const InstanceRequest& request, Instance* instance) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const DeviceGroup> group_;
  mutable Mutex mu_;
  uint64_t next_waiter_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<Key, std::unique_ptr<Instance>> instances_ ABSL_GUARDED_BY(mu_);
  std::deque<Key> order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
