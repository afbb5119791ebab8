#include "millrace/cluster/collectives/graph_key.h"

#include <set>

#include "absl/strings/match.h"

namespace millrace {
namespace {

constexpr uint64_t kEmptyGraphKey = 0x8774aa605c729c72u;

}  // namespace

int64_t CollectiveGraphKey(const Graph& graph) {
  std::set<int64_t> instances;
  bool any = false;
  for (const Node* node : graph.nodes()) {
    if (!absl::StartsWith(node->type(), "Collective")) continue;
    any = true;
    const StatusOr<int64_t> instance = node->Attr<int64_t>("instance_key");
    if (instance.ok()) instances.insert(*instance);
  }
  if (!any) return 0;
  uint64_t key = kEmptyGraphKey;
  for (const int64_t instance : instances) {
    const auto a = static_cast<uint64_t>(instance);
    key = a ^ (key + 0x9e3779b97f4a7800u + (a << 10) + (a >> 4));
  }
  return static_cast<int64_t>(key);
}

}  // namespace millrace
