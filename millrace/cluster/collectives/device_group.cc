#include "millrace/cluster/collectives/device_group.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "millrace/graph/device_name.h"

namespace millrace {
namespace {

Status CheckChosenRanks(const std::vector<GroupMember>& members) {
  absl::flat_hash_set<int> chosen;
  bool some_did_not = false;
  for (const GroupMember& member : members) {
    if (member.chosen_rank >= static_cast<int>(members.size())) {
      return InvalidArgument("User Provided rank is invalid. It should be between [0, group_size): device ",
                             member.device.name(), " has rank ", member.chosen_rank, " in a group of ", members.size());
    }
    if (member.chosen_rank < 0) {
      some_did_not = true;
    } else {
      chosen.insert(member.chosen_rank);
    }
  }
  if (chosen.empty()) return absl::OkStatus();
  const std::string received = absl::StrJoin(members, ",", [](std::string* out, const GroupMember& member) {
    absl::StrAppend(out, member.device.name(), "=", member.chosen_rank);
  });
  if (some_did_not) {
    return InvalidArgument("Only part of the group members have user given rank specified. Received ranks: ", received);
  }
  if (chosen.size() < members.size()) {
    return InvalidArgument("Duplicate ranks specified for group members. Received ranks: ", received);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::string> TaskOfDevice(string_view device) {
  MR_ASSIGN_OR_RETURN(DeviceName name, DeviceName::Parse(device));
  if (!name.IsFull()) return InvalidArgument("'", device, "' is not the full name of a device");
  name.type.reset();
  name.index.reset();
  return name.ToString();
}

StatusOr<std::shared_ptr<const DeviceGroup>> DeviceGroup::Make(int32_t key, std::string device_type,
                                                               std::vector<GroupMember> members) {
  if (members.empty() || members.size() > kMaxSize) {
    return InvalidArgument("group ", key, " has ", members.size(), " members; it may have 1 to ", kMaxSize);
  }
  using Order = std::tuple<std::string, std::string, int>;  // the task, the type and the index of a device
  std::vector<std::pair<Order, GroupMember>> ordered;
  ordered.reserve(members.size());
  for (GroupMember& member : members) {
    MR_ASSIGN_OR_RETURN(member.task, TaskOfDevice(member.device.name()));
    MR_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(member.device.name()));
    Order order(member.task, *name.type, *name.index);
    ordered.emplace_back(std::move(order), std::move(member));
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::shared_ptr<DeviceGroup> group(new DeviceGroup(key, std::move(device_type)));
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (i > 0 && ordered[i].first == ordered[i - 1].first) {
      return InvalidArgument("device ", ordered[i].second.device.name(), " is in group ", key, " twice");
    }
    if (i == 0 || ordered[i].second.task != group->members_.back().task) group->devices_per_task_.push_back(0);
    ++group->devices_per_task_.back();
    group->members_.push_back(std::move(ordered[i].second));
  }
  MR_RETURN_IF_ERROR(CheckChosenRanks(group->members_));
  return group;
}

int DeviceGroup::RankOf(string_view device) const {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].device.name() == device) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace millrace
