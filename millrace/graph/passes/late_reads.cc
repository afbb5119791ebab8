// Decides when a reference is read.
//
// In TensorFlow an Identity of a reference shares the variable's memory, so a consumer that runs after an update of the
// same step sees the update; moving averages and other TF1 programs rely on that. Here an Identity takes a snapshot. To
// get the same results, a consumer that is ordered after an update reads the variable itself when it runs; all others
// keep the snapshot, which no update can change.
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/passes/pass.h"
#include "millrace/graph/references.h"

namespace millrace {

Status ReadAfterUpdates(Graph* graph) {
  absl::flat_hash_map<Endpoint, std::vector<Node*>> updates, reads;
  for (Node* node : graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!IsRef(node->input(i).dtype())) continue;
      if (IsRef(node->input_type(i)) && !node->IsControlFlow()) {
        updates[ReferredVariable(node->input(i))].push_back(node);
      } else if (node->is_type("Identity")) {
        reads[ReferredVariable(node->input(i))].push_back(node);
      }
    }
  }
  if (updates.empty() || reads.empty()) return absl::OkStatus();
  const std::vector<std::vector<Consumer>> consumers = ConsumersById(*graph);
  std::vector<int> reached(graph->max_id(), -1);
  int round = 0;
  for (const auto& [variable, readers] : reads) {
    const auto it = updates.find(variable);
    if (it == updates.end()) continue;
    // Everything that runs after one of the updates.
    std::vector<Node*> queue = it->second;
    for (size_t head = 0; head < queue.size(); ++head) {
      for (const Consumer& c : consumers[queue[head]->id()]) {
        if (reached[c.node->id()] == round) continue;
        reached[c.node->id()] = round;
        queue.push_back(c.node);
      }
    }
    for (const Node* reader : readers) {
      // A read that is itself ordered after an update needs no change.
      if (reached[reader->id()] == round) continue;
      for (const Consumer& c : consumers[reader->id()]) {
        if (c.slot < 0 || reached[c.node->id()] != round || c.node->IsControlFlow()) continue;
        if (c.node->assigned_device() != reader->assigned_device()) continue;
        graph->SetInput(c.node, c.slot, reader->input(0));
      }
    }
    ++round;
  }
  return absl::OkStatus();
}

}  // namespace millrace
