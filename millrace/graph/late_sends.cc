#include "millrace/graph/late_sends.h"

#include "millrace/graph/references.h"

namespace millrace {

LateSends FindLateSends(const CutGraph& cut) {
  Graph* const graph = cut.graph();
  LateSends late;
  absl::flat_hash_map<Endpoint, std::vector<Node*>> updates;
  for (Node* node : graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (IsRef(node->input_type(i)) && !node->IsControlFlow())
        updates[ReferredVariable(node->input(i))].push_back(node);
    }
  }
  if (updates.empty()) return late;
  struct Read {
    Node* consumer;
    int slot;
    Node* reader;
  };
  absl::flat_hash_map<Endpoint, std::vector<Read>> reads;  // by variable
  for (Node* node : graph->nodes()) {
    if (cut.TaskOf(node) < 0 || node->IsControlFlow()) continue;
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Node* reader = node->input(i).node;
      if (!reader->is_type("Identity") || reader->num_inputs() == 0 || !IsRef(reader->input(0).dtype())) continue;
      const Endpoint variable = ReferredVariable(reader->input(0));
      if (updates.contains(variable)) reads[variable].push_back({node, i, node->input(i).node});
    }
  }
  if (reads.empty()) return late;
  const std::vector<std::vector<Consumer>> consumers = ConsumersById(*graph);
  std::vector<int> reached(graph->max_id(), -1);
  int round = 0;
  for (const auto& [variable, readers] : reads) {
    for (Node* update : updates[variable]) {
      // Everything that runs after it.
      std::vector<Node*> queue = {update};
      for (size_t head = 0; head < queue.size(); ++head) {
        for (const Consumer& c : consumers[queue[head]->id()]) {
          if (reached[c.node->id()] == round) continue;
          reached[c.node->id()] = round;
          queue.push_back(c.node);
        }
      }
      for (const Read& read : readers) {
        const Endpoint reference = read.reader->input(0);
        const bool same_loop = cut.OutputLoopOf(update) == cut.OutputLoopOf(reference.node) &&
                               cut.OutputLoopOf(update) == cut.OutputLoopOf(read.reader);
        // A read that is itself ordered after the update needs no change.
        if (!same_loop || reached[read.consumer->id()] != round || reached[read.reader->id()] == round) continue;
        graph->SetInput(read.consumer, read.slot, reference);
        late[{read.consumer->id(), read.slot}].push_back(update);
      }
      ++round;
    }
  }
  return late;
}

}  // namespace millrace
