// Where the groups of a session are formed, and how its tasks reach each other.
#pragma once

#include <memory>
#include <string>

#include "millrace/cluster/collectives/group_table.h"
#include "millrace/cluster/worker/peers.h"

namespace millrace {

struct CollectiveScope {
  std::string task = {};  // this task's name in the session
  // The task that forms the groups; empty if every task forms its own, of its own devices only.
  std::string leader = {};
  std::shared_ptr<const PeerSet> peers = nullptr;  // null if there are no other tasks
  // The groups that are formed here, or that the leader has formed. Those of a session with a leader are shared by all
  // such sessions of a task, because a leader cannot tell which session a device of another task belongs to.
  std::shared_ptr<GroupTable> groups = nullptr;

  bool leads() const { return leader.empty() || leader == task; }
  // INVALID_ARGUMENT if the cluster has no such task.
  StatusOr<const Peer*> FindPeer(const std::string& name) const;
};

// "/job:worker/replica:0/task:0" of "/job:worker/task:0". INVALID_ARGUMENT unless it is the name of a task.
StatusOr<std::string> LeaderName(const std::string& text);

}  // namespace millrace
