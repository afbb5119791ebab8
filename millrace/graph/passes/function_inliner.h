// Calls made into plain nodes: what one executor can run, and gradients can be taken of.
//
// A call's body is spliced in under the caller's name ("caller/inner"), so errors and statistics name both. If and Case become
// Switch and Merge, While becomes a loop of Enter, Merge, Switch, NextIteration and Exit. What cannot be expanded
// stays a call and is run by its kernel: a function that calls itself, and what would make the graph too large.
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
  // `context` may be null. Its targets get the nodes of bodies that must run although nobody asks for their results.
  FunctionInliner(Graph* graph, PassContext* context) : graph_(graph), context_(context) {}

  // Everything in the graph.
  Status ExpandAll();
  // These nodes and what is in them; each stays in the graph under its name and gives the results.
  Status ExpandInPlace(absl::Span<Node* const> calls);

  // True for the ops that this class knows how to expand.
  static bool IsCall(const Node& node);

 private:
  // A body within the graph.
  struct Spliced {
    std::vector<Endpoint> rets;
    std::vector<Node*> done;     // all of them ran: the call is over
    std::vector<Node*> effects;  // the part of `done` that is not a result
  };
  struct Argument {
    Endpoint value;
    // It is dead, or not there, whenever the body must not run: a node that takes it needs no gate.
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
  StatusOr<bool> ExpandWhile(const Call& call);
  bool MayInline(const pb::NameAttrList& function, int caller) const;
  StatusOr<Spliced> Splice(const Call& call, const FlatFunction& flat, const std::string& prefix,
                           absl::Span<const Argument> args, Gate gate);
  // The call is over: its users take `rets` and wait for `done`.
  Status Finish(const Call& call, std::vector<Endpoint> rets, const std::vector<Node*>& done);
  void Rewire();

  // A node beside `call`: on its device, named under it.
  StatusOr<Node*> Add(const Call& call, absl::string_view op, absl::string_view name, std::vector<Endpoint> inputs,
                      AttrList attrs = {}, std::vector<Node*> control_inputs = {});
  Endpoint Resolved(Endpoint e) const;
  // Something to wait for that is alive just when `e` is.
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

// Expands every call that can be; see FunctionInliner.
Status InlineFunctions(Graph* graph, PassContext* context);

}  // namespace millrace
