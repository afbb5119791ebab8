#include "absl/container/flat_hash_set.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {

Status Prune(Graph* graph, const PassContext& context) {
  const Roles roles(*graph, context);
  const absl::flat_hash_set<Endpoint> fed(context.feeds.begin(), context.feeds.end());
  std::vector<bool> needed(graph->max_id(), false);
  std::vector<Node*> stack;
  const auto need = [&](Node* node) {
    if (node->is_detached() || needed[node->id()]) return;
    needed[node->id()] = true;
    stack.push_back(node);
  };
  for (const Endpoint& e : context.fetches) {
    if (!fed.contains(e)) need(e.node);
  }
  for (Node* node : context.targets) need(node);
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (const Endpoint& e : node->inputs()) {
      if (!roles.IsFed(e.node) || !fed.contains(e)) need(e.node);
    }
    // A control edge from a fed node is satisfied by the feed.
    for (Node* before : node->control_inputs()) {
      if (!roles.IsFed(before)) need(before);
    }
  }
  // Fed nodes are kept alive even if unused, because the context points to them.
  graph->Detach([&](const Node* node) { return !needed[node->id()] && roles.IsFed(node); });
  graph->RemoveNodes([&](const Node* node) { return !needed[node->id()]; });
  return absl::OkStatus();
}

}  // namespace millrace
