#include "millrace/cluster/worker/prepare_senders.h"

#include <memory>
#include <set>
#include <utility>

#include "millrace/base/fan_in.h"

namespace millrace {
void PrepareSenders(const Graph& graph, const PeerSet& peers, const std::string& master,
                    absl::AnyInvocable<void()> done) {
  std::set<const Peer*> senders;
  for (const Node* node : graph.nodes()) {
    const std::string device = node->AttrOr<std::string>("send_device", "");
    const Peer* const sender = device.empty() ? nullptr : peers.Find(device.substr(0, device.find("/device:")));
    if (sender != nullptr && sender->name != master) senders.insert(sender);
  }
  const auto all = std::make_shared<FanIn>(senders.size() + 1, [done = std::move(done)](Status) mutable { done(); });
  for (const Peer* sender : senders) sender->worker->Prepare([all] { all->Arrive(); });
  all->Arrive();
}

}  // namespace millrace
