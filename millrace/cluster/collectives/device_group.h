// A complete group of devices that run collective ops together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/proto/master.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

struct GroupMember {
  pb::DeviceAttributes device = {};
  int chosen_rank = -1;   // by the program; -1: none
  std::string task = {};  // "/job:worker/replica:0/task:0"
};

// Immutable. The members are in the order of their ranks, which is TensorFlow's: tasks in the order of their names, and
// the devices of a task by type and index. Every task computes the order by itself.
class DeviceGroup {
 public:
  // More members than this are refused.
  static constexpr int kMaxSize = 1 << 14;

  // INVALID_ARGUMENT if a name is not that of a device, is there twice, or if only some members chose a rank or two
  // chose the same.
  static StatusOr<std::shared_ptr<const DeviceGroup>> Make(int32_t key, std::string device_type,
                                                           std::vector<GroupMember> members);

  int32_t key() const { return key_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::string& device_type() const { return device_type_; }
  const std::vector<GroupMember>& members() const { return members_; }
  const GroupMember& member(int rank) const { return members_[rank]; }
  // The number of devices of each task, in the order of the ranks.
  const std::vector<int>& devices_per_task() const { return devices_per_task_; }
  // -1 if it is not a member.
  int RankOf(string_view device) const;
  // The rank that the program chose, or else the member's own.
  int ChosenRank(int rank) const { return members_[rank].chosen_rank < 0 ? rank : members_[rank].chosen_rank; }

 private:
  DeviceGroup(int32_t key, std::string device_type) : key_(key), device_type_(std::move(device_type)) {}

  const int32_t key_;
  const std::string device_type_;
  std::vector<GroupMember> members_;
  std::vector<int> devices_per_task_;
};

// "/job:worker/replica:0/task:0" of "/job:worker/replica:0/task:0/device:CPU:1"; INVALID_ARGUMENT unless `device` is a
// full name.
StatusOr<std::string> TaskOfDevice(string_view device);

}  // namespace millrace
