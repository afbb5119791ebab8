// The other tasks of a cluster, as one task reaches them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/watch/liveness.h"
#include "millrace/cluster/worker/worker_interface.h"
#include "millrace/net/transport.h"

namespace millrace {

struct Peer {
  TaskId id;
  std::string name;     // "/job:ps/replica:0/task:0"
  std::string address;  // "host:port"
  std::shared_ptr<WorkerInterface> worker;
};

// All tasks of `cluster` except `self`. Immutable and thread-safe.
class PeerSet {
 public:
  PeerSet(const ClusterSpec& cluster, const TaskId& self, net::Transport* transport, const LivenessOptions& liveness);

  const std::string& self() const { return self_; }
  // Null if the cluster has no such task, or if it is `self`.
  const Peer* Find(absl::string_view task) const;
  const std::vector<Peer>& all() const { return all_; }
  const ClusterSpec& cluster() const { return cluster_; }

 private:
  const std::string self_;
  const ClusterSpec cluster_;
  std::vector<Peer> all_;
  absl::flat_hash_map<std::string, int> by_name_;
};

}  // namespace millrace
