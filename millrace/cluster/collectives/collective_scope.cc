#include "millrace/cluster/collectives/collective_scope.h"

#include "millrace/graph/device_name.h"

namespace millrace {

StatusOr<const Peer*> CollectiveScope::FindPeer(const std::string& name) const {
  const Peer* const peer = peers == nullptr ? nullptr : peers->Find(name);
  if (peer != nullptr) return peer;
  return InvalidArgument("the cluster of ", task, " has no task ", name,
                         name == leader ? " (ConfigProto.experimental.collective_group_leader)" : "");
}

StatusOr<std::string> LeaderName(const std::string& text) {
  MR_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(text));
  if (!name.job || !name.task) return InvalidArgument("collective_group_leader '", text, "' is not the name of a task");
  return TaskId{*name.job, *name.task}.name();
}

}  // namespace millrace
