#include <queue>

#include "absl/strings/str_join.h"
#include "millrace/graph/graph.h"

namespace millrace {
namespace {

// True for edges that impose no order: back edges of loops, and edges from detached nodes.
bool IsUnordered(const Node* from, const Node* to) {
  return from->is_detached() || (from->IsNextIteration() && to->IsMerge());
}

// True if every edge except back edges goes from a smaller id to a larger one, as in graphs built front to back.
bool IsInOrder(const Graph& graph) {
  for (const Node* node : graph.nodes()) {
    for (const Endpoint& e : node->inputs()) {
      if (e.node->id() >= node->id() && !IsUnordered(e.node, node)) return false;
    }
    for (const Node* before : node->control_inputs()) {
      if (before->id() >= node->id()) return false;
    }
  }
  return true;
}

struct LaterId {
  bool operator()(const Node* a, const Node* b) const { return a->id() > b->id(); }
};

}  // namespace

StatusOr<std::vector<Node*>> TopologicalOrder(const Graph& graph) {
  std::vector<Node*> order;
  if (IsInOrder(graph)) {
    order.assign(graph.nodes().begin(), graph.nodes().end());
    return order;
  }
  const auto consumers = ConsumersById(graph);
  std::vector<int> pending(graph.max_id(), 0);
  std::priority_queue<Node*, std::vector<Node*>, LaterId> ready;
  for (Node* node : graph.nodes()) {
    int count = 0;
    for (const Node* before : node->control_inputs()) count += before->is_detached() ? 0 : 1;
    for (const Endpoint& e : node->inputs()) count += IsUnordered(e.node, node) ? 0 : 1;
    pending[node->id()] = count;
    if (count == 0) ready.push(node);
  }
  order.reserve(graph.nodes().size());
  while (!ready.empty()) {
    Node* node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const Consumer& c : consumers[node->id()]) {
      if (c.slot >= 0 && IsUnordered(node, c.node)) continue;
      if (--pending[c.node->id()] == 0) ready.push(c.node);
    }
  }
  if (order.size() == graph.nodes().size()) return order;
  // Walking backwards along unprocessed nodes ends on a cycle.
  Node* at = nullptr;
  for (Node* node : graph.nodes()) {
    if (pending[node->id()] > 0) at = node;
  }
  std::vector<bool> seen(graph.max_id(), false);
  while (!seen[at->id()]) {
    seen[at->id()] = true;
    Node* next = nullptr;
    for (const Endpoint& e : at->inputs()) {
      if (!IsUnordered(e.node, at) && pending[e.node->id()] > 0) next = e.node;
    }
    for (Node* before : at->control_inputs()) {
      if (pending[before->id()] > 0) next = before;
    }
    at = next;
  }
  return InvalidArgument("The graph has a cycle through {{node ", at->name(), "}} (op ", at->type(),
                         ") without a NextIteration");
}

std::vector<std::vector<Consumer>> ConsumersById(const Graph& graph) {
  std::vector<int> counts(graph.max_id(), 0);
  for (const Node* node : graph.nodes()) {
    for (const Endpoint& e : node->inputs()) ++counts[e.node->id()];
    for (const Node* before : node->control_inputs()) ++counts[before->id()];
  }
  std::vector<std::vector<Consumer>> consumers(graph.max_id());
  for (size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] > 0) consumers[id].reserve(counts[id]);
  }
  for (Node* node : graph.nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      consumers[node->input(i).node->id()].push_back({node, i});
    }
    for (const Node* before : node->control_inputs()) consumers[before->id()].push_back({node, -1});
  }
  return consumers;
}

std::string GraphToString(const Graph& graph) {
  std::string text;
  for (const Node* node : graph.nodes()) {
    std::vector<std::string> inputs;
    for (const Endpoint& e : node->inputs()) {
      inputs.push_back(e.index == 0 ? e.node->name() : e.name());
    }
    for (const Node* before : node->control_inputs()) inputs.push_back("^" + before->name());
    absl::StrAppend(&text, node->name(), " = ", node->type(), "(", absl::StrJoin(inputs, ", "), ")\n");
  }
  return text;
}

}  // namespace millrace
