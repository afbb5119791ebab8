#include "millrace/cluster/worker/peers.h"

#include "millrace/cluster/worker/remote_worker.h"

namespace millrace {

PeerSet::PeerSet(const ClusterSpec& cluster, const TaskId& self, net::Transport* transport,
                 const LivenessOptions& liveness)
    : self_(self.name()), cluster_(cluster) {
  for (const TaskId& task : cluster.tasks()) {
    if (task == self) continue;
    Peer peer{.id = task, .name = task.name(), .address = cluster.Address(task).value(), .worker = nullptr};
    peer.worker =
        std::make_shared<RemoteWorker>(peer.name, transport->Connect(peer.address),
                                       WatchOptions{.peer_timeout = liveness.peer_timeout, .timers = liveness.timers});
    by_name_[peer.name] = static_cast<int>(all_.size());
    all_.push_back(std::move(peer));
  }
}

const Peer* PeerSet::Find(absl::string_view task) const {
  const auto it = by_name_.find(task);
  return it == by_name_.end() ? nullptr : &all_[it->second];
}

}  // namespace millrace
