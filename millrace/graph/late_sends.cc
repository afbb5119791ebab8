// Decides when a TF1 variable that another task reads is sent.
//
// Within a task, a consumer ordered after an update of a variable sees the update even through an Identity that ran
// before it: see passes/late_reads.cc. The same must hold if the reader, or a node in between, is on another task: a
// consumer ordered after an update reads the variable itself, which is sent after the update.
#include "millrace/graph/cut_graph.h"
#include "millrace/graph/references.h"

namespace millrace {

void CutGraph::FindLateReads() {
  absl::flat_hash_map<Endpoint, std::vector<Node*>> updates;
  for (Node* node : graph_->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (IsRef(node->input_type(i)) && !node->IsControlFlow())
        updates[ReferredVariable(node->input(i))].push_back(node);
    }
  }
  if (updates.empty()) return;
  struct Read {
    Node* consumer;
    int slot;
    Node* reader;
  };
  absl::flat_hash_map<Endpoint, std::vector<Read>> reads;  // by variable
  for (Node* node : graph_->nodes()) {
    if (TaskOf(node) < 0 || node->IsControlFlow()) continue;
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Node* reader = node->input(i).node;
      if (!reader->is_type("Identity") || reader->num_inputs() == 0 || !IsRef(reader->input(0).dtype())) continue;
      const Endpoint variable = ReferredVariable(reader->input(0));
      if (updates.contains(variable)) reads[variable].push_back({node, i, node->input(i).node});
    }
  }
  if (reads.empty()) return;
  const std::vector<std::vector<Consumer>> consumers = ConsumersById(*graph_);
  std::vector<int> reached(graph_->max_id(), -1);
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
        const bool same_loop =
            OutputLoopOf(update) == OutputLoopOf(reference.node) && OutputLoopOf(update) == OutputLoopOf(read.reader);
        // A read that is itself ordered after the update needs no change.
        if (!same_loop || reached[read.consumer->id()] != round || reached[read.reader->id()] == round) continue;
        graph_->SetInput(read.consumer, read.slot, reference);
        late_[{read.consumer->id(), read.slot}].push_back(update);
      }
      ++round;
    }
  }
}

}  // namespace millrace
