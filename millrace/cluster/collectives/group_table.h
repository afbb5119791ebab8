// The groups of devices that a task knows: those that are being formed here, and complete ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/collectives/device_group.h"
#include "millrace/cluster/collectives/instance_table.h"

namespace millrace {

// A complete group with its instances.
struct JoinedGroup {
  std::shared_ptr<const DeviceGroup> group;
  std::shared_ptr<InstanceTable> instances;
};

struct JoinRequest {
  int32_t key = 0;
  int32_t size = 0;
  std::string device_type = {};
  pb::DeviceAttributes device = {};
  int chosen_rank = -1;
};

// The table of the task that forms groups (the leader, or every task if there is none), or of a task that remembers
// what the leader said. Thread-safe.
//
// An error ends the group that is being formed for everybody who waits for it; the next attempt starts afresh. A
// complete group stays until Drop or Clear. If the process of a member was restarted, the group gets its new device,
// and members that still have the old one learn it when they ask the restarted task for a buffer.
class GroupTable {
 public:
  using Done = absl::AnyInvocable<void(StatusOr<JoinedGroup>)>;
  // Groups that are known at the same time.
  static constexpr size_t kMaxGroups = 1 << 12;

  // Adds the device, if it is not a member yet, and calls `done` once, without a lock, when the group is complete.
  // INTERNAL if the group has another size or device type, or is full; INVALID_ARGUMENT for a malformed request.
  // Returns a number for Leave if it has to wait, else 0.
  uint64_t Join(const JoinRequest& request, Done done);
  // Ends a wait with `why`, and takes the device back out of the group. A no-op if it has ended.
  void Leave(int32_t key, uint64_t waiter, const Status& why);

  // FAILED_PRECONDITION if the group is not complete here.
  StatusOr<JoinedGroup> Find(int32_t key) const;
  // Remembers a group that its leader has completed.
  JoinedGroup Put(std::shared_ptr<const DeviceGroup> group);
  // Forgets the group, unless another one has taken its place.
  void Drop(const DeviceGroup& group);
  // Forgets all groups; whoever waits for one gets `why`.
  void Clear(const Status& why);
  // The programs that formed the groups have ended. TensorFlow's tasks remember groups for ever, so complete ones stay;
  // but a device that comes with another size, or is not a member, begins another group.
  void Release();

  // Who has joined: "1 of 2 devices: /job:worker/replica:0/task:0/device:CPU:0".
  std::string Progress(int32_t key) const;

 private:
  struct Waiter {
    uint64_t id;
    std::string device;
    Done done;
  };
  struct Entry {
    int32_t size = 0;
    std::string device_type = {};
    std::vector<GroupMember> members = {};
    std::vector<Waiter> waiting = {};
    JoinedGroup joined = {};  // null until the group is complete
    bool released = false;    // until a member joins again
  };

  static Status Check(const JoinRequest& request);
  // Adds the device to the entry, or finds that it is there. An error of a group that is being formed ends it.
  static Status Add(const JoinRequest& request, Entry* entry);
  // Whether the device can only join another group under the same key.
  static bool IsForAnother(const JoinRequest& request, const Entry& entry);

  mutable Mutex mu_;
  uint64_t next_waiter_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<int32_t, Entry> groups_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
