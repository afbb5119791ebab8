#include <algorithm>
#include <cstdint>
#include <vector>

#include "millrace/graph/passes/pass.h"

namespace millrace {
namespace {

// A set of collective nodes, by index.
using IndexSet = std::vector<bool>;

void Merge(const IndexSet& from, IndexSet* into) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i]) (*into)[i] = true;
  }
}

}  // namespace

Status OrderCollectives(Graph* graph) {
  std::vector<std::pair<int64_t, Node*>> marked;
  for (Node* node : graph->nodes()) {
    if (node->FindAttr(kCollectiveOrderAttr) == nullptr) continue;
    MR_ASSIGN_OR_RETURN(const int64_t order, node->Attr<int64_t>(kCollectiveOrderAttr));
    marked.emplace_back(order, node);
  }
  if (marked.size() < 2) return absl::OkStatus();
  std::sort(marked.begin(), marked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second->name() < b.second->name();
  });

  // Which of them each node runs after.
  MR_ASSIGN_OR_RETURN(const std::vector<Node*> order, TopologicalOrder(*graph));
  std::vector<IndexSet> before(static_cast<size_t>(graph->max_id()));
  for (const Node* node : order) {
    IndexSet& own = before[node->id()];
    own.assign(marked.size(), false);
    const auto add = [&](const Node* input) {
      if (input->is_detached()) return;
      Merge(before[input->id()], &own);
      for (size_t i = 0; i < marked.size(); ++i) {
        if (marked[i].second == input) own[i] = true;
      }
    };
    for (const Endpoint& input : node->inputs()) add(input.node);
    for (const Node* input : node->control_inputs()) add(input);
  }

  // Of those that may run next, the one with the lowest number.
  IndexSet placed(marked.size(), false);
  Node* last = nullptr;
  for (size_t n = 0; n < marked.size(); ++n) {
    for (size_t i = 0; i < marked.size(); ++i) {
      const IndexSet& needs = before[marked[i].second->id()];
      bool ready = !placed[i];
      for (size_t j = 0; ready && j < marked.size(); ++j) ready = !needs[j] || placed[j];
      if (!ready) continue;
      placed[i] = true;
      if (last != nullptr) graph->AddControlInput(marked[i].second, last);
      last = marked[i].second;
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
