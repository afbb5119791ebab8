// Decides when a reference is read.
//
// In TensorFlow an Identity of a reference shares the variable's memory, so a consumer that runs after an update of the
// same step sees the update; moving averages, loops that update a variable and other TF1 programs rely on that. Here an
// Identity takes a snapshot. To get the same results, a consumer that is ordered after an update reads the variable
// itself when it runs, and a reference is carried to it through the Enter and Switch ops on its way; all others keep
// the snapshot, which no update can change.
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/passes/pass.h"
#include "millrace/graph/references.h"

namespace millrace {
namespace {

// Connects the consumers of one variable's snapshots that run after an update of it with the variable.
class LateReads {
 public:
  // `late`, by id: runs after an update.
  LateReads(Graph* graph, const std::vector<std::vector<Consumer>>& consumers, std::vector<bool> late)
      : graph_(graph), consumers_(consumers), late_(std::move(late)) {}

  bool IsLate(const Node* node) const { return late_[node->id()]; }

  // `value` is a snapshot of what `reference` refers to.
  Status Redirect(Endpoint value, Endpoint reference) {
    for (const Consumer& c : consumers_[value.node->id()]) {
      if (c.slot < 0 || !(c.node->input(c.slot) == value)) continue;
      if (IsDoor(c)) {
        if (!Takes(c, value)) continue;
        if (LeadsToLateReader(c.node)) MR_RETURN_IF_ERROR(CarryThrough(c.node, reference));
      } else if (IsLateReader(c.node) && IsInTask(*c.node, *value.node)) {
        // On another device, InsertCopies has the value copied when this reader runs.
        graph_->SetInput(c.node, c.slot, reference);
      }
    }
    return absl::OkStatus();
  }

 private:
  static bool IsInTask(const Node& a, const Node& b) {
    const auto task = [](absl::string_view device) { return device.substr(0, device.find("/device:")); };
    return task(a.assigned_device()) == task(b.assigned_device());
  }
  // A reference goes through doors on its own device only.
  static bool Takes(const Consumer& c, Endpoint value) {
    return c.slot >= 0 && c.node->input(c.slot) == value && c.node->assigned_device() == value.node->assigned_device();
  }
  // Passes the value on into a loop or a branch, and has a twin for references.
  static bool IsDoor(const Consumer& c) {
    return c.slot == 0 && (c.node->is_type("Enter") || c.node->is_type("Switch"));
  }
  bool IsLateReader(const Node* node) const { return late_[node->id()] && !node->IsControlFlow(); }

  // Ends: there is no cycle without a Merge.
  bool LeadsToLateReader(Node* door) const {
    for (int i = 0; i < door->num_outputs(); ++i) {
      for (const Consumer& c : consumers_[door->id()]) {
        if (!Takes(c, door->output(i))) continue;
        if (IsDoor(c) ? LeadsToLateReader(c.node) : IsLateReader(c.node)) return true;
      }
    }
    return false;
  }

  Status CarryThrough(Node* door, Endpoint reference) {
    NodeSpec spec;
    spec.name = graph_->UniqueName(absl::StrCat(door->name(), "/ref"));
    spec.op = absl::StrCat("Ref", door->type());
    spec.inputs.assign(door->inputs().begin(), door->inputs().end());
    spec.inputs[0] = reference;
    spec.control_inputs.assign(door->control_inputs().begin(), door->control_inputs().end());
    spec.device = door->requested_device();
    spec.attrs = door->attrs();
    MR_ASSIGN_OR_RETURN(Node * twin, graph_->AddNode(std::move(spec)));
    graph_->SetAssignedDevice(twin, door->assigned_device());
    for (int i = 0; i < door->num_outputs(); ++i) {
      MR_RETURN_IF_ERROR(Redirect(door->output(i), twin->output(i)));
    }
    return absl::OkStatus();
  }

  Graph* const graph_;
  const std::vector<std::vector<Consumer>>& consumers_;
  const std::vector<bool> late_;
};

// By id: everything that runs after one of the updates.
std::vector<bool> After(const Graph& graph, const std::vector<std::vector<Consumer>>& consumers,
                        const std::vector<Node*>& updates) {
  std::vector<bool> after(graph.max_id(), false);
  std::vector<Node*> queue = updates;
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const Consumer& c : consumers[queue[head]->id()]) {
      if (after[c.node->id()]) continue;
      after[c.node->id()] = true;
      queue.push_back(c.node);
    }
  }
  return after;
}

}  // namespace

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
  for (const auto& [variable, readers] : reads) {
    const auto it = updates.find(variable);
    if (it == updates.end()) continue;
    LateReads late(graph, consumers, After(*graph, consumers, it->second));
    for (Node* reader : readers) {
      // A read that is itself ordered after an update needs no change.
      if (!late.IsLate(reader)) MR_RETURN_IF_ERROR(late.Redirect(reader->output(0), reader->input(0)));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
