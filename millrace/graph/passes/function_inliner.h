// Inlining of function calls, so that one executor can run the graph and gradients can be taken.
//
// The nodes of a body get the caller's name as a prefix ("caller/inner"), so that errors and statistics name both. If
// and Case become Switch and Merge; While becomes a loop of Enter, Merge, Switch, NextIteration and Exit. Recursive
// calls, and calls that would make the graph too large, are not inlined: their kernels run them.
#pragma once

#include "millrace/graph/passes/body_splicer.h"

namespace millrace {

class FunctionInliner {
 public:
  // `context` may be null. Nodes of bodies that must run for their side effects are added to its targets.
  FunctionInliner(Graph* graph, PassContext* context) : graph_(graph), context_(context), splicer_(graph, context) {}

  // Expands all calls in the graph.
  Status ExpandAll();
  // Expands these calls and calls within them; each call node stays in the graph under its name and forwards the
  // results.
  Status ExpandInPlace(absl::Span<Node* const> calls);

  // True for the ops that this class knows how to expand.
  static bool IsCall(const Node& node);

 private:
  using Call = BodySplicer::Call;

  // In a graph with control flow of its own: the call runs only if all its inputs are alive, but the nodes that replace
  // it use some of them each.
  Status WaitForAllInputs(const Call& call);
  Status Drain();
  // These return false if the call stays as it is.
  StatusOr<bool> Expand(const Call& call);
  StatusOr<bool> ExpandCall(const Call& call);
  StatusOr<bool> ExpandGradient(const Call& call);
  // Replaces the call by the body.
  Status Inline(const Call& call, const FlatFunction& flat);

  Graph* const graph_;
  PassContext* const context_;
  BodySplicer splicer_;
};

// Expands every call that can be expanded; see FunctionInliner.
Status InlineFunctions(Graph* graph, PassContext* context);

}  // namespace millrace
