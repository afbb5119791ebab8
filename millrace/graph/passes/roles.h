// What a step does with the nodes of its graph, for passes to ask quickly.
#pragma once

#include <vector>

#include "millrace/graph/passes/pass.h"

namespace millrace {

class Roles {
 public:
  Roles(const Graph& graph, const PassContext& context)
      : fed_(graph.max_id(), false), kept_(graph.max_id(), false) {
    for (const Endpoint& e : context.feeds) fed_[e.node->id()] = true;
    for (const Endpoint& e : context.fetches) kept_[e.node->id()] = true;
    for (const Node* node : context.targets) kept_[node->id()] = true;
  }

  // Some output of the node is fed.
  bool IsFed(const Node* node) const { return Has(fed_, node); }
  // The node is fetched from or run for its own sake, so it must not go away.
  bool IsKept(const Node* node) const { return Has(kept_, node); }
  // Nobody outside the graph looks at the node.
  bool IsInner(const Node* node) const { return !IsFed(node) && !IsKept(node); }

 private:
  // Nodes that a pass added have no role.
  static bool Has(const std::vector<bool>& set, const Node* node) {
    return node->id() < static_cast<int>(set.size()) && set[node->id()];
  }
  std::vector<bool> fed_;
  std::vector<bool> kept_;
};

}  // namespace millrace
