#include "millrace/cluster/prepare_senders.h"

#include <memory>
#include <set>
#include <utility>

namespace millrace {
namespace {

// Calls back when its last owner has gone.
class Ready {
 public:
  explicit Ready(absl::AnyInvocable<void()> done) : done_(std::move(done)) {}
  ~Ready() { done_(); }

 private:
  absl::AnyInvocable<void()> done_;
};

}  // namespace

void PrepareSenders(const Graph& graph, const PeerSet& peers, const std::string& master, absl::AnyInvocable<void()> done) {
  std::set<const Peer*> senders;
  for (const Node* node : graph.nodes()) {
    const std::string device = node->AttrOr<std::string>("send_device", "");
    const Peer* const sender = device.empty() ? nullptr : peers.Find(device.substr(0, device.find("/device:")));
    if (sender != nullptr && sender->name != master) senders.insert(sender);
  }
  const auto ready = std::make_shared<Ready>(std::move(done));
  for (const Peer* sender : senders) sender->worker->Prepare([ready] {});
}

}  // namespace millrace
