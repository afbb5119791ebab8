#include "millrace/graph/control_loops.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// Outputs of these nodes exist in one iteration of a frame only or, for a constant Enter, are the same in all. They are
// not sent; each task that uses them gets a copy of the node, whose input is sent instead.
bool IsBorder(const Node& node) { return (node.IsEnter() || node.IsNextIteration()) && !IsRef(node.output_type(0)); }

class LoopPreparation {
 public:
  explicit LoopPreparation(CutGraph& cut) : cut_(cut), graph_(cut.graph()) {}

  Status Run() {
    MR_ASSIGN_OR_RETURN(const LoopForest forest, LoopForest::Find(*graph_));
    cut_.SetLoops(forest);
    for (Node* node : graph_->nodes()) {
      // An Exit and a LoopCond only forward their input. Placed with its source, an Exit is sent once instead of once
      // per iteration, and the predicate takes no extra hop.
      const bool follows = node->IsExit() || node->op().control_kind == ControlKind::kLoopCond;
      if (!follows) continue;
      const Node* source = node->input(0).node;
      if (cut_.TaskOf(source) >= 0 && cut_.TaskOf(source) != cut_.TaskOf(node)) cut_.Move(node, cut_.HostOf(source));
    }
    MR_RETURN_IF_ERROR(TwinAtBorders());
    return AddControlLoops();
  }

 private:
  StatusOr<Node*> TwinOn(Node* node, int device) {
    Node*& twin = twins_[{node, cut_.device(device).task}];
    if (twin == nullptr) {
      NodeSpec spec;
      spec.name = cut_.NewName(node->name());
      spec.op = node->type();
      spec.inputs.assign(node->inputs().begin(), node->inputs().end());
      spec.control_inputs.assign(node->control_inputs().begin(), node->control_inputs().end());
      spec.attrs = node->attrs();
      MR_ASSIGN_OR_RETURN(
          twin, cut_.Add(std::move(spec), device, node->origins(), cut_.LoopOf(node), cut_.OutputLoopOf(node)));
    }
    return twin;
  }

  Status TwinAtBorders() {
    const auto crosses = [&](const Node* source, const Node* node) {
      return IsBorder(*source) && cut_.TaskOf(source) >= 0 && cut_.TaskOf(source) != cut_.TaskOf(node);
    };
    absl::flat_hash_set<Node*> twinned;
    // Twins added by this loop are visited too: the input of an Enter may be another Enter.
    for (int n = 0; n < graph_->num_nodes(); ++n) {
      Node* node = graph_->nodes()[n];
      if (cut_.TaskOf(node) < 0) continue;
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Endpoint source = node->input(i);
        if (!crosses(source.node, node)) continue;
        twinned.insert(source.node);
        MR_ASSIGN_OR_RETURN(Node * twin, TwinOn(source.node, cut_.HostOf(node)));
        graph_->SetInput(node, i, twin->output(source.index));
      }
      const std::vector<Node*> waits(node->control_inputs().begin(), node->control_inputs().end());
      for (Node* before : waits) {
        if (!crosses(before, node)) continue;
        twinned.insert(before);
        MR_ASSIGN_OR_RETURN(Node * twin, TwinOn(before, cut_.HostOf(node)));
        graph_->RemoveControlInput(node, before);
        graph_->AddControlInput(node, twin);
      }
    }
    DropUnused({twinned.begin(), twinned.end()});
    return absl::OkStatus();
  }

  // Removes candidates without users, which would only keep a loop iterating.
  void DropUnused(std::vector<Node*> candidates) {
    if (candidates.empty()) return;
    std::vector<int> uses(graph_->max_id(), 0);
    for (const Node* node : graph_->nodes()) {
      for (const Endpoint& e : node->inputs()) ++uses[e.node->id()];
      for (const Node* before : node->control_inputs()) ++uses[before->id()];
    }
    for (const Endpoint& e : cut_.options().fetches) ++uses[e.node->id()];
    absl::flat_hash_set<const Node*> dropped;
    for (size_t i = 0; i < candidates.size(); ++i) {
      Node* node = candidates[i];
      if (uses[node->id()] > 0 || !dropped.insert(node).second) continue;
      for (const Endpoint& e : node->inputs()) {
        if (--uses[e.node->id()] == 0 && IsBorder(*e.node)) candidates.push_back(e.node);
      }
      for (Node* before : node->control_inputs()) --uses[before->id()];
    }
    if (dropped.empty()) return;
    for (CutGraph::FoundLoop& loop : cut_.loops()) {
      if (!dropped.contains(loop.enter)) continue;
      for (const auto& [of, twin] : twins_) {
        if (of.first == loop.enter) loop.enter = twin;
      }
    }
    graph_->RemoveNodes([&](const Node* node) { return dropped.contains(node); });
  }

  Status AddControlLoops() {
    std::vector<std::set<int>> tasks(cut_.loops().size());
    for (const Node* node : graph_->nodes()) {
      if (cut_.TaskOf(node) < 0) continue;
      if (cut_.LoopOf(node) != CutGraph::kRoot) tasks[cut_.LoopOf(node)].insert(cut_.TaskOf(node));
      if (cut_.OutputLoopOf(node) != CutGraph::kRoot && node->IsEnter())
        tasks[cut_.OutputLoopOf(node)].insert(cut_.TaskOf(node));
    }
    // Inner loops come after their outer loop.
    for (size_t i = cut_.loops().size(); i-- > 0;) {
      if (cut_.loops()[i].parent != CutGraph::kRoot)
        tasks[cut_.loops()[i].parent].insert(tasks[i].begin(), tasks[i].end());
    }
    for (size_t i = 0; i < cut_.loops().size(); ++i) {
      if (tasks[i].size() < 2) continue;
      for (const int task : tasks[i]) MR_RETURN_IF_ERROR(AddControlLoop(static_cast<int>(i), task));
    }
    return absl::OkStatus();
  }

  Status AddControlLoop(int index, int task) {
    const CutGraph::FoundLoop& loop = cut_.loops()[index];
    if (loop.condition == nullptr) {
      return InvalidArgument("the loop '", loop.frame_name, "' of {{node ", loop.enter->origins()[0],
                             "}} has nodes on several tasks but no LoopCond that could tell them when it ends");
    }
    MR_ASSIGN_OR_RETURN(const int device, cut_.FindDevice(cut_.HostDevice(task)));
    const std::string prefix = absl::StrCat(loop.condition->name(), "/_cloop");
    const auto add = [&](const char* op, std::vector<Endpoint> inputs, int home, NodeSpec spec = {}) {
      spec.name = cut_.NewName(prefix);
      spec.op = op;
      spec.inputs = std::move(inputs);
      return cut_.Add(std::move(spec), device, loop.condition->origins(), home, index);
    };
    NodeSpec spec;
    spec.attrs["dtype"].set_type(pb::DT_INT32);
    spec.attrs["value"].mutable_tensor()->set_dtype(pb::DT_INT32);
    spec.attrs["value"].mutable_tensor()->add_int_val(0);
    spec.attrs["value"].mutable_tensor()->mutable_tensor_shape();
    if (loop.parent != CutGraph::kRoot) spec.control_inputs = {cut_.TriggerOf(loop.parent, task)};
    MR_ASSIGN_OR_RETURN(Node * value, add("Const", {}, loop.parent, std::move(spec)));
    cut_.SetOutputLoop(value, loop.parent);
    NodeSpec entry;
    entry.attrs["frame_name"].set_s(loop.frame_name);
    entry.attrs["is_constant"].set_b(false);
    if (const pb::AttrValue* parallel = loop.enter->FindAttr("parallel_iterations"))
      entry.attrs["parallel_iterations"] = *parallel;
    MR_ASSIGN_OR_RETURN(Node * enter, add("Enter", {value->output(0)}, loop.parent, std::move(entry)));
    MR_ASSIGN_OR_RETURN(Node * merge, add("Merge", {enter->output(0), enter->output(0)}, index));
    MR_ASSIGN_OR_RETURN(Node * gate, add("Switch", {merge->output(0), loop.condition->output(0)}, index));
    MR_ASSIGN_OR_RETURN(Node * next, add("NextIteration", {gate->output(1)}, index));
    graph_->SetInput(merge, 1, next->output(0));
    cut_.SetTrigger(index, task, merge);
    return absl::OkStatus();
  }

  CutGraph& cut_;
  Graph* const graph_;
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> twins_;  // (node, task)
};

}  // namespace

Status PrepareLoops(CutGraph& cut) {
  const auto nodes = cut.graph()->nodes();
  const bool has_loops = std::any_of(nodes.begin(), nodes.end(), [](const Node* n) { return n->IsEnter(); });
  return has_loops ? LoopPreparation(cut).Run() : absl::OkStatus();
}

}  // namespace millrace
