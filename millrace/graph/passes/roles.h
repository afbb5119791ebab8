// Constant-time queries for the roles of nodes in a step: fed, fetched or run as targets.
#pragma once

#include <vector>

#include "millrace/graph/passes/pass.h"

namespace millrace {

class Roles {
 public:
  Roles(const Graph& graph, const PassContext& context) : fed_(graph.max_id(), false), kept_(graph.max_id(), false) {
    for (const Endpoint& e : context.feeds) fed_[e.node->id()] = true;
    for (const Endpoint& e : context.fetches) kept_[e.node->id()] = true;
    for (const Node* node : context.targets) kept_[node->id()] = true;
  }

  // Some output of the node is fed by the client.
  bool IsFed(const Node* node) const { return Has(fed_, node); }
  // The node is fetched or a target, so it must not be removed.
  bool IsKept(const Node* node) const { return Has(kept_, node); }
  // The node is neither fed, fetched nor a target.
  bool IsInner(const Node* node) const { return !IsFed(node) && !IsKept(node); }

 private:
  // Nodes added after construction have no role.
  static bool Has(const std::vector<bool>& set, const Node* node) {
    return node->id() < static_cast<int>(set.size()) && set[node->id()];
  }
  std::vector<bool> fed_;
  std::vector<bool> kept_;
};

}  // namespace millrace
