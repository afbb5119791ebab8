// Inlining of function calls, so that one executor can run the graph and gradients can be taken.
//
// The nodes of a body get the caller's name as a prefix ("caller/inner"), so that errors and statistics name both. If
// and Case become Switch and Merge; While becomes a loop of Enter, Merge, Switch, NextIteration and Exit. Recursive
// calls, and calls that would make the graph too large, are not inlined: their kernels run them.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "millrace/graph/function.h"
#include "millrace/graph/passes/pass.h"

namespace millrace {

class FunctionInliner {
 public:
  // `context` may be null. Nodes of bodies that must run for their side effects are added to its targets.
  FunctionInliner(Graph* graph, PassContext* context) : graph_(graph), context_(context) {}

  // Expands all calls in the graph.
  Status ExpandAll();
  // Expands these calls and calls within them; each call node stays in the graph under its name and forwards the
  // results.
  Status ExpandInPlace(absl::Span<Node* const> calls);

  // True for the ops that this class knows how to expand.
  static bool IsCall(const Node& node);

 private:
  // A body that was copied into the graph.
  struct Spliced {
    std::vector<Endpoint> rets;
    std::vector<Node*> done;     // the call has finished when all of them have run
    std::vector<Node*> effects;  // those of `done` that produce no result
  };
  struct Argument {
    Endpoint value;
    // The value is dead or absent whenever the body must not run, so its consumers need no other gate.
    bool gates = false;
  };
  using Gate = absl::FunctionRef<StatusOr<Node*>()>;
  struct Caller {
    std::string function;
    int outer;  // into callers_; -1 at the end
  };
  struct Call {
    Node* node;
    int caller;
    bool keep;
  };

  Status Drain();
  StatusOr<bool> Expand(const Call& call);
  StatusOr<bool> ExpandCall(const Call& call);
  StatusOr<bool> ExpandGradient(const Call& call);
  StatusOr<bool> ExpandCond(const Call& call);

  // While (lower_while.cc), in phases.
  struct WhileLoop;
  StatusOr<bool> ExpandWhile(const Call& call);
  Status CheckWhile(const WhileLoop& loop) const;
  StatusOr<Node*> AddEnter(const WhileLoop& loop, Endpoint value, bool constant);
  Status EnterWhile(WhileLoop& loop);
  // Adds a loop variable, the token, to a loop that has none.
  Status CarryToken(WhileLoop& loop);
  Status TestWhile(WhileLoop& loop);
  StatusOr<Spliced> AddWhileBody(WhileLoop& loop);
  Status LeaveWhile(const WhileLoop& loop, const Spliced& step);

  bool MayInline(const pb::NameAttrList& function, int caller) const;
  StatusOr<Spliced> Splice(const Call& call, const FlatFunction& flat, const std::string& prefix,
                           absl::Span<const Argument> args, Gate gate);
  // Replaces the call: its consumers use `rets` and wait for `done`.
  Status Finish(const Call& call, std::vector<Endpoint> rets, const std::vector<Node*>& done);
  void Rewire();

  // Adds a node on the device of `call`, with its name as the prefix.
  StatusOr<Node*> Add(const Call& call, absl::string_view op, absl::string_view name, std::vector<Endpoint> inputs,
                      AttrList attrs = {}, std::vector<Node*> control_inputs = {});
  Endpoint Resolved(Endpoint e) const;
  // A node that is alive exactly when `e` is, for control edges.
  StatusOr<Node*> AliveWith(const Call& call, Endpoint e);

  Graph* const graph_;
  PassContext* const context_;
  std::vector<Caller> callers_;
  std::vector<Call> calls_;
  absl::flat_hash_map<Endpoint, Endpoint> results_;
  absl::flat_hash_map<const Node*, std::vector<Node*>> waits_;
  absl::flat_hash_set<const Node*> expanded_;
  bool has_control_flow_ = false;
};

// Expands every call that can be expanded; see FunctionInliner.
Status InlineFunctions(Graph* graph, PassContext* context);

}  // namespace millrace
