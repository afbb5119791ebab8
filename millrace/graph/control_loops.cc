// Loops that span tasks.
//
// A frame exists in every part that has nodes of the loop, and advances there only while some node of that part
// iterates. Therefore each such task gets a control loop: an Enter, Merge, Switch and NextIteration of a dummy value,
// controlled by the loop's predicate, which is received from the task of its LoopCond. Its Merge fires once per
// iteration, even if the loop itself is in a branch that was not taken: every _Recv inside the loop waits for it and
// gets a live or a dead value.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "millrace/graph/cut_graph.h"
#include "millrace/graph/loops.h"

namespace millrace {
namespace {

// Outputs of these nodes exist in one iteration of a frame only or, for a constant Enter, are the same in all. They are
// not sent; each task that uses them gets a copy of the node, whose input is sent instead.
bool IsBorder(const Node& node) { return (node.IsEnter() || node.IsNextIteration()) && !IsRef(node.output_type(0)); }

}  // namespace

Status CutGraph::PrepareLoops() {
  const bool has_loops =
      std::any_of(graph_->nodes().begin(), graph_->nodes().end(), [](const Node* n) { return n->IsEnter(); });
  if (!has_loops) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const LoopForest forest, LoopForest::Find(*graph_));
  for (const Loop& loop : forest.loops()) {
    loops_.push_back({loop.frame_name, loop.parent, loop.condition, loop.enters[0]});
  }
  home_.assign(graph_->max_id(), kRoot);
  outer_.assign(graph_->max_id(), kRoot);
  for (Node* node : graph_->nodes()) {
    home_[node->id()] = forest.LoopOf(node);
    outer_[node->id()] = forest.OutputLoopOf(node);
    // An Exit and a LoopCond only forward their input. Placed with its source, an Exit is sent once instead of once per
    // iteration, and the predicate takes no extra hop.
    const bool follows = node->IsExit() || node->op().control_kind == ControlKind::kLoopCond;
    if (follows && TaskOf(node->input(0).node) >= 0 && TaskOf(node->input(0).node) != TaskOf(node)) {
      Move(node, HostOf(node->input(0).node));
    }
  }
  MR_RETURN_IF_ERROR(TwinAtBorders());
  return AddControlLoops();
}

StatusOr<Node*> CutGraph::TwinOn(Node* node, int device) {
  Node*& twin = twins_[{node, devices_[device].task}];
  if (twin == nullptr) {
    NodeSpec spec;
    spec.name = NewName(node->name());
    spec.op = node->type();
    spec.inputs.assign(node->inputs().begin(), node->inputs().end());
    spec.control_inputs.assign(node->control_inputs().begin(), node->control_inputs().end());
    spec.attrs = node->attrs();
    MR_ASSIGN_OR_RETURN(twin, Add(std::move(spec), device, node->origins(), LoopOf(node), OutputLoopOf(node)));
  }
  return twin;
}

Status CutGraph::TwinAtBorders() {
  const auto crosses = [&](const Node* source, const Node* node) {
    return IsBorder(*source) && TaskOf(source) >= 0 && TaskOf(source) != TaskOf(node);
  };
  absl::flat_hash_set<Node*> twinned;
  // Twins added by this loop are visited too: the input of an Enter may be another Enter.
  for (int n = 0; n < graph_->num_nodes(); ++n) {
    Node* node = graph_->nodes()[n];
    if (TaskOf(node) < 0) continue;
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Endpoint source = node->input(i);
      if (!crosses(source.node, node)) continue;
      twinned.insert(source.node);
      MR_ASSIGN_OR_RETURN(Node * twin, TwinOn(source.node, HostOf(node)));
      graph_->SetInput(node, i, twin->output(source.index));
    }
    const std::vector<Node*> waits(node->control_inputs().begin(), node->control_inputs().end());
    for (Node* before : waits) {
      if (!crosses(before, node)) continue;
      twinned.insert(before);
      MR_ASSIGN_OR_RETURN(Node * twin, TwinOn(before, HostOf(node)));
      graph_->RemoveControlInput(node, before);
      graph_->AddControlInput(node, twin);
    }
  }
  DropUnused({twinned.begin(), twinned.end()});
  return absl::OkStatus();
}

// Removes candidates without users, which would only keep a loop iterating.
void CutGraph::DropUnused(std::vector<Node*> candidates) {
  if (candidates.empty()) return;
  std::vector<int> uses(graph_->max_id(), 0);
  for (const Node* node : graph_->nodes()) {
    for (const Endpoint& e : node->inputs()) ++uses[e.node->id()];
    for (const Node* before : node->control_inputs()) ++uses[before->id()];
  }
  for (const Endpoint& e : options_.fetches) ++uses[e.node->id()];
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
  for (FoundLoop& loop : loops_) {
    if (!dropped.contains(loop.enter)) continue;
    for (const auto& [of, twin] : twins_) {
      if (of.first == loop.enter) loop.enter = twin;
    }
  }
  graph_->RemoveNodes([&](const Node* node) { return dropped.contains(node); });
}

Status CutGraph::AddControlLoops() {
  std::vector<std::set<int>> tasks(loops_.size());
  for (const Node* node : graph_->nodes()) {
    if (TaskOf(node) < 0) continue;
    if (LoopOf(node) != kRoot) tasks[LoopOf(node)].insert(TaskOf(node));
    if (OutputLoopOf(node) != kRoot && node->IsEnter()) tasks[OutputLoopOf(node)].insert(TaskOf(node));
  }
  // Inner loops come after their outer loop.
  for (size_t i = loops_.size(); i-- > 0;) {
    if (loops_[i].parent != kRoot) tasks[loops_[i].parent].insert(tasks[i].begin(), tasks[i].end());
  }
  for (size_t i = 0; i < loops_.size(); ++i) {
    if (tasks[i].size() < 2) continue;
    for (const int task : tasks[i]) MR_RETURN_IF_ERROR(AddControlLoop(static_cast<int>(i), task));
  }
  return absl::OkStatus();
}

Status CutGraph::AddControlLoop(int index, int task) {
  const FoundLoop& loop = loops_[index];
  if (loop.condition == nullptr) {
    return InvalidArgument("the loop '", loop.frame_name, "' of {{node ", loop.enter->origins()[0],
                           "}} has nodes on several tasks but no LoopCond that could tell them when it ends");
  }
  MR_ASSIGN_OR_RETURN(const int device, FindDevice(HostDevice(task)));
  const std::string prefix = absl::StrCat(loop.condition->name(), "/_cloop");
  const auto add = [&](const char* op, std::vector<Endpoint> inputs, int home, NodeSpec spec = {}) {
    spec.name = NewName(prefix);
    spec.op = op;
    spec.inputs = std::move(inputs);
    return Add(std::move(spec), device, loop.condition->origins(), home, index);
  };
  NodeSpec spec;
  spec.attrs["dtype"].set_type(pb::DT_INT32);
  spec.attrs["value"].mutable_tensor()->set_dtype(pb::DT_INT32);
  spec.attrs["value"].mutable_tensor()->add_int_val(0);
  spec.attrs["value"].mutable_tensor()->mutable_tensor_shape();
  if (loop.parent != kRoot) spec.control_inputs = {triggers_.at({loop.parent, task})};
  MR_ASSIGN_OR_RETURN(Node * value, add("Const", {}, loop.parent, std::move(spec)));
  outer_[value->id()] = loop.parent;
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
  triggers_[{index, task}] = merge;
  return absl::OkStatus();
}

}  // namespace millrace
