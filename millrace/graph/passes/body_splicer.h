// Copies the bodies of functions into a graph, in place of the nodes that call them.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "millrace/graph/function.h"
#include "millrace/graph/passes/pass.h"

namespace millrace {

// What the expansions of all kinds of calls (function_inliner.h) share: it adds nodes and bodies, collects the calls
// within them, and replaces the calls that were expanded.
class BodySplicer {
 public:
  // A call to be expanded.
  struct Call {
    Node* node;
    int caller;  // the body that it is in; -1 outside of all
    bool keep;   // the node stays in the graph under its name
  };
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
  // The node that those nodes of a body wait for that no argument gates; null if they need not wait.
  using Gate = absl::FunctionRef<StatusOr<Node*>()>;

  // `context` may be null. Nodes of bodies that must run for their side effects are added to its targets.
  BodySplicer(Graph* graph, PassContext* context) : graph_(graph), context_(context) {}

  Graph* graph() const { return graph_; }
  // The calls to be expanded. Splice appends those within the bodies.
  std::vector<Call>& calls() { return calls_; }
  // True if nodes of the graph may be dead.
  bool has_control_flow() const { return has_control_flow_; }
  void set_has_control_flow() { has_control_flow_ = true; }

  // False for recursive calls, and if the graph is too large.
  bool MayInline(const pb::NameAttrList& function, int caller) const;
  // Adds the nodes of a body, with `prefix` before their names.
  StatusOr<Spliced> Splice(const Call& call, const FlatFunction& flat, const std::string& prefix,
                           absl::Span<const Argument> args, Gate gate);
  // Replaces the call: its consumers use `rets` and wait for `done`. Takes effect with Rewire.
  Status Finish(const Call& call, std::vector<Endpoint> rets, const std::vector<Node*>& done);
  void Rewire();

  // Adds a node on the device of `call`, with its name as the prefix.
  StatusOr<Node*> Add(const Call& call, absl::string_view op, absl::string_view name, std::vector<Endpoint> inputs,
                      AttrList attrs = {}, std::vector<Node*> control_inputs = {});
  Endpoint Resolved(Endpoint e) const;
  // A node that is alive exactly when `e` is, for control edges.
  StatusOr<Node*> AliveWith(const Call& call, Endpoint e);

 private:
  struct Caller {
    std::string function;
    int outer;  // into callers_; -1 at the end
  };
  // A body while it is copied.
  struct Copy;

  Status CopyNode(Copy& copy, const pb::NodeDef& original, pb::NodeDef* node);
  // Finds the calls and the side effects among the new nodes, from number `first` on.
  Status TakeIn(const Copy& copy, size_t first, Spliced* result);
  StatusOr<Endpoint> Result(Copy& copy, size_t r);

  Graph* const graph_;
  PassContext* const context_;
  std::vector<Caller> callers_;
  std::vector<Call> calls_;
  absl::flat_hash_map<Endpoint, Endpoint> results_;
  absl::flat_hash_map<const Node*, std::vector<Node*>> waits_;
  absl::flat_hash_set<const Node*> expanded_;
  bool has_control_flow_ = false;
};

}  // namespace millrace
