#include "millrace/graph/control_flow_gradient.h"

#include "absl/container/flat_hash_set.h"

namespace millrace {
namespace {

// The point where a value became conditional: output `branch` of a Switch on `predicate`.
struct Branch {
  Endpoint predicate;
  int branch = -1;
  const Node* gate = nullptr;
};

// Walks back from `start` to the Switch that decides whether it is alive. A conditional that begins and ends on the way
// is skipped: each Merge passed cancels one Switch.
Branch FindBranch(Endpoint start) {
  struct Step {
    Endpoint at;
    int depth;
  };
  std::vector<Step> stack = {{start, 0}};
  absl::flat_hash_set<std::pair<const Node*, int>> seen;
  while (!stack.empty()) {
    const auto [at, depth] = stack.back();
    stack.pop_back();
    int next_depth = depth;
    if (at.node->IsSwitch()) {
      // A loop's own Switch selects iterations, not branches; whether the loop runs at all depends on its Enters.
      const bool loops = at.node->input(1).node->op().control_kind == ControlKind::kLoopCond;
      if (loops) {
        if (seen.insert({at.node, depth}).second) stack.push_back({at.node->input(0), depth});
        continue;
      }
      if (depth == 0 && at.index >= 0) return {at.node->input(1), at.index, at.node};
      next_depth = depth - 1;
      if (next_depth < 0) continue;
    } else if (at.node->IsMerge()) {
      Node* enter = nullptr;
      for (const Endpoint& e : at.node->inputs()) {
        if (e.node->IsEnter()) enter = e.node;
      }
      if (enter != nullptr) {
        if (seen.insert({at.node, depth}).second) stack.push_back({enter->input(0), depth});
        continue;
      }
      next_depth = depth + 1;
    }
    if (!seen.insert({at.node, next_depth}).second) continue;
    for (Node* before : at.node->control_inputs()) stack.push_back({Endpoint{before, -1}, next_depth});
    for (const Endpoint& e : at.node->inputs()) stack.push_back({e, next_depth});
  }
  return {};
}

// Zeros computed from the branch's own output are alive exactly when that branch is. The zeros of a variable's handle
// have the shape of its value.
Endpoint ZerosOfBranch(GradientContext& c, int branch, DType dtype) {
  const Endpoint out = c.output(branch);
  if (out.dtype() != DType::kResource) return c.ZerosLike(out);
  return c.ZerosLike(c.Op("ReadVariableOp", {out}, {{"dtype", dtype}}));
}

}  // namespace

Status SwitchGradient(GradientContext& c) {
  std::vector<Endpoint> sides(c.num_outputs());
  Endpoint some;
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (!c.raw_grad(i).IsNone()) some = sides[i] = c.grad(i);
  }
  for (int i = 0; some && i < c.num_outputs(); ++i) {
    if (!sides[i]) sides[i] = ZerosOfBranch(c, i, BaseType(some.dtype()));
  }
  if (!c.ok()) return c.status();
  c.set_input_grad(0, c.Op("Merge", sides));
  return c.status();
}

Status MergeGradient(GradientContext& c) {
  Node* gate = nullptr;
  Endpoint predicate;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input(i).node->IsNextIteration() || c.input(i).node->IsEnter()) {
      return Unimplemented("the loop that it belongs to is not one that While makes");
    }
    const Branch branch = FindBranch(c.input(i));
    if (branch.branch < 0) {
      return InvalidArgument("no Switch controls ", c.input(i).name(),
                             ", so its gradient through the Merge is not defined");
    }
    if (gate == nullptr || predicate != branch.predicate) {
      predicate = branch.predicate;
      const Endpoint grad = c.grad(0);
      gate = branch.gate->is_type("_SwitchN")
                 ? c.AddNode("_SwitchN", {grad, predicate},
                             {{"num_outs", static_cast<int64_t>(branch.gate->num_outputs())}})
                 : c.AddNode("Switch", {grad, predicate});
      if (gate == nullptr) return c.status();
    }
    c.set_input_grad(i, gate->output(branch.branch));
  }
  return c.status();
}

}  // namespace millrace
