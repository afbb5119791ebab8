#include "millrace/cluster/collectives/group_table.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace millrace {

Status GroupTable::Check(const JoinRequest& request) {
  if (request.size < 1 || request.size > DeviceGroup::kMaxSize) {
    return InvalidArgument("group_size must be positive integer but got ", request.size, " (group_key=", request.key,
                           "); the largest is ", DeviceGroup::kMaxSize);
  }
  if (request.chosen_rank >= request.size) {
    return InvalidArgument("rank must be less than group size but got ", request.chosen_rank, " >= ", request.size,
                           " (group_key=", request.key, ")");
  }
  return TaskOfDevice(request.device.name()).status();
}

Status GroupTable::Add(const JoinRequest& request, Entry* entry) {
  const std::string& device = request.device.name();
  if (request.device_type != entry->device_type) {
    return Internal("Device ", device, " of type ", request.device_type,
                    " is joining a group with incompatible device type ", entry->device_type,
                    " (group_key=", request.key, ")");
  }
  if (request.size != entry->size) {
    return Internal("Device ", device, " is joining a group with size ", request.size, ", but that group has size ",
                    entry->size, " (group_key=", request.key, ")");
  }
  for (GroupMember& member : entry->members) {
    if (member.device.name() != device) continue;
    if (member.device.incarnation() == request.device.incarnation()) return absl::OkStatus();
    member.device = request.device;
    entry->joined = {};  // made again with the new device
    return absl::OkStatus();
  }
  if (static_cast<int>(entry->members.size()) == entry->size) {
    return Internal("Device ", device, " is joining a group that is already full (group_key=", request.key,
                    "): its members are ",
                    absl::StrJoin(entry->members, ", ",
                                  [](std::string* out, const auto& member) { out->append(member.device.name()); }));
  }
  entry->members.push_back({.device = request.device, .chosen_rank = request.chosen_rank});
  return absl::OkStatus();
}

bool GroupTable::IsForAnother(const JoinRequest& request, const Entry& entry) {
  return request.size != entry.size || request.device_type != entry.device_type ||
         std::none_of(entry.members.begin(), entry.members.end(),
                      [&](const GroupMember& member) { return member.device.name() == request.device.name(); });
}

uint64_t GroupTable::Join(const JoinRequest& request, Done done) {
  if (Status status = Check(request); !status.ok()) {
    done(std::move(status));
    return 0;
  }
  StatusOr<JoinedGroup> result;
  std::vector<Waiter> ready;
  std::shared_ptr<InstanceTable> replaced;  // of the group before it was formed again
  uint64_t waits_as = 0;
  {
    MutexLock lock(&mu_);
    const auto [it, is_new] = groups_.try_emplace(request.key);
    Entry& entry = it->second;
    const bool replaces = entry.released && IsForAnother(request, entry);
    const std::shared_ptr<InstanceTable> before = entry.joined.instances;
    if (replaces) entry = Entry();
    entry.released = false;
    if (is_new && groups_.size() > kMaxGroups) {
      groups_.erase(it);
      result = ResourceExhausted("there are ", kMaxGroups, " groups of collective ops already; group ", request.key,
                                 " is one too many");
    } else {
      if (is_new || replaces) {
        entry.size = request.size;
        entry.device_type = request.device_type;
      }
      const bool was_complete = static_cast<int>(entry.members.size()) == entry.size;
      Status status = Add(request, &entry);
      if (entry.joined.instances != before) replaced = before;
      if (status.ok() && static_cast<int>(entry.members.size()) < entry.size) {
        waits_as = next_waiter_++;
        entry.waiting.push_back({.id = waits_as, .device = request.device.name(), .done = std::move(done)});
      } else if (status.ok() && entry.joined.group == nullptr) {
        StatusOr<std::shared_ptr<const DeviceGroup>> group =
            DeviceGroup::Make(request.key, entry.device_type, entry.members);
        status = group.status();
        if (status.ok()) entry.joined = {*group, std::make_shared<InstanceTable>(*group)};
      }
      if (waits_as == 0 && status.ok()) {
        result = entry.joined;
        ready = std::move(entry.waiting);
        entry.waiting.clear();
      } else if (waits_as == 0) {
        result = status;
        if (!was_complete) {
          ready = std::move(entry.waiting);
          groups_.erase(it);
        }
      }
    }
  }
  if (replaced != nullptr)
    replaced->End(Aborted("group ", request.key, " is formed again, for ", request.device.name()));
  if (waits_as != 0) return waits_as;
  done(result);
  for (Waiter& waiter : ready) waiter.done(result);
  return 0;
}

void GroupTable::Leave(int32_t key, uint64_t id, const Status& why) {
  Done done;
  {
    MutexLock lock(&mu_);
    const auto it = groups_.find(key);
    if (it == groups_.end()) return;
    Entry& entry = it->second;
    const auto waiter =
        std::find_if(entry.waiting.begin(), entry.waiting.end(), [&](const Waiter& w) { return w.id == id; });
    if (waiter == entry.waiting.end()) return;
    done = std::move(waiter->done);
    const std::string device = std::move(waiter->device);
    entry.waiting.erase(waiter);
    // Other ops of the device may wait for the same group.
    const bool others = std::any_of(entry.waiting.begin(), entry.waiting.end(),
                                    [&](const Waiter& other) { return other.device == device; });
    if (!others) {
      entry.members.erase(std::remove_if(entry.members.begin(), entry.members.end(),
                                         [&](const GroupMember& member) { return member.device.name() == device; }),
                          entry.members.end());
    }
    if (entry.members.empty()) groups_.erase(it);
  }
  done(why);
}

StatusOr<JoinedGroup> GroupTable::Find(int32_t key) const {
  MutexLock lock(&mu_);
  const auto it = groups_.find(key);
  if (it == groups_.end() || it->second.joined.group == nullptr) {
    return FailedPrecondition("group ", key, " is not complete here. This normally means that the task was restarted");
  }
  return it->second.joined;
}

JoinedGroup GroupTable::Put(std::shared_ptr<const DeviceGroup> group) {
  MutexLock lock(&mu_);
  Entry& entry = groups_[group->key()];
  if (entry.joined.group != nullptr && entry.members.size() == group->members().size() &&
      std::equal(entry.joined.group->members().begin(), entry.joined.group->members().end(), group->members().begin(),
                 [](const GroupMember& a, const GroupMember& b) {
                   return a.device.name() == b.device.name() && a.device.incarnation() == b.device.incarnation();
                 })) {
    return entry.joined;
  }
  entry.size = group->size();
  entry.device_type = group->device_type();
  entry.members = group->members();
  entry.joined = {group, std::make_shared<InstanceTable>(group)};
  return entry.joined;
}

void GroupTable::Drop(const DeviceGroup& group) {
  MutexLock lock(&mu_);
  const auto it = groups_.find(group.key());
  if (it != groups_.end() && it->second.joined.group.get() == &group && it->second.waiting.empty()) groups_.erase(it);
}

void GroupTable::Clear(const Status& why) {
  absl::flat_hash_map<int32_t, Entry> groups;
  {
    MutexLock lock(&mu_);
    groups.swap(groups_);
  }
  for (auto& [key, entry] : groups) {
    for (Waiter& waiter : entry.waiting) waiter.done(why);
    if (entry.joined.instances != nullptr) entry.joined.instances->End(why);
  }
}

void GroupTable::Release() {
  MutexLock lock(&mu_);
  for (auto& [key, entry] : groups_) entry.released = entry.joined.group != nullptr;
}

std::string GroupTable::Progress(int32_t key) const {
  MutexLock lock(&mu_);
  const auto it = groups_.find(key);
  if (it == groups_.end()) return "no device has joined";
  return absl::StrCat(it->second.members.size(), " of ", it->second.size, " devices: ",
                      absl::StrJoin(it->second.members, ", ", [](std::string* out, const GroupMember& member) {
                        out->append(member.device.name());
                      }));
}

}  // namespace millrace
