// The implementation of one AddGradients call: reverse-mode differentiation from the ys back to the xs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/loops.h"

namespace millrace {

// Visits nodes in reverse topological order, so that all uses of a tensor have contributed their gradients before the
// tensor's own node is visited. A loop is visited as a whole (loop_gradient.cc): its gradient is a loop that runs the
// gradient of the body the same number of times, in reverse.
class Backward {
 public:
  Backward(Graph* graph, const std::vector<Endpoint>& ys, const std::vector<Endpoint>& xs,
           const GradientOptions& options);
  StatusOr<std::vector<Grad>> Run();

 private:
  // A backward loop under construction.
  struct Region {
    int loop = LoopForest::kRoot;  // the forward loop
    Region* outer = nullptr;
    std::string frame_name;  // of the backward loop
    int64_t parallel_iterations = 10;
    Node* pivot = nullptr;  // runs once per backward iteration
    std::optional<CondPaths> paths;
    // Inputs of backward nodes that are values of the forward loop. They are saved (pushed) in the forward loop and
    // restored (popped) in reverse order.
    struct Borrowed {
      Node* node;
      int input;
      Endpoint value;
    };
    std::vector<Borrowed> borrowed;
  };
  // A loop variable of a loop under construction; see Carry.
  struct Carried {
    Node* merge = nullptr;
    Node* gate = nullptr;
    Node* exit = nullptr;
    Endpoint in_body() const { return gate->output(1); }
  };

  // The gradient of a loop under construction: shared by the phases of VisitLoop, in the order in which they fill it
  // in.
  struct LoopGradient {
    LoopGradient(const Loop& of, Graph* graph) : loop(of), b(graph) {}
    const Loop& loop;  // the forward loop
    std::vector<Loop::Variable> variables;
    Carried count;  // of the forward loop's iterations
    Region region;
    GraphBuilder b;
    Node* count_enter = nullptr;
    std::vector<Node*> enters;                           // of the variables' gradients
    Endpoint condition;                                  // of the backward loop
    std::vector<Carried> grads;                          // by variable
    std::vector<std::pair<Endpoint, Endpoint>> results;  // a tensor outside the loop, and a part of its gradient
  };
  // The values that a backward loop borrows, while they are saved; see SaveValues.
  struct History;

  Status CheckEndpoint(const char* what, size_t i, const Endpoint& e) const;
  Status CheckArguments() const;
  Status ExpandCalls();
  bool IsReached(const Endpoint& e) const;
  void MarkReached(const std::vector<Node*>& order);
  Status Seed();
  // The accumulated gradient of `e`. The nodes that sum it are built once and cached.
  Grad Total(const Endpoint& e);
  Grad Sum(const std::vector<Grad>& parts);
  Grad SumSlices(const std::vector<Grad>& parts);
  Endpoint DenseTotal(const Endpoint& e);
  // The device of the nodes that compute the gradient of `node`.
  const std::string& DeviceFor(const Node& node) const {
    return options_.device.empty() ? node.requested_device() : options_.device;
  }

  Status VisitAll(int loop);
  Status Visit(Node* node);
  Status Collect(const GradientContext& context);

  // Loops (loop_gradient.cc).
  Status VisitLoop(int loop);
  Status CheckExits(const Loop& loop) const;
  // The initial gradient of a variable in the backward loop: that of its Exit, or zeros.
  StatusOr<Endpoint> StartOfGradient(LoopGradient& g, const Loop::Variable& v);
  // Adds the initial values of the backward loop, outside of it.
  Status EnterBackwardLoop(LoopGradient& g);
  // Adds the backward loop itself, which counts its iterations down and carries the gradients of the variables.
  Status CountDown(LoopGradient& g);
  Status GoBackThroughBody(LoopGradient& g);
  // The gradient of a value that is the same in every iteration.
  Status SumUpInvariant(LoopGradient& g, Node* enter);
  std::vector<Loop::Variable> LiveVariables(const Loop& loop) const;
  Node* EnterLoop(GraphBuilder& b, const Region& region, Endpoint value, bool constant) const;
  // Adds a loop variable whose initial value is `enter`; Close sets its next value.
  Carried Carry(GraphBuilder& b, Node* enter, const PartialShape& shape) const;
  void Gate(GraphBuilder& b, Carried* carried, Endpoint condition) const;
  void Close(GraphBuilder& b, Carried* carried, Endpoint next) const;
  Endpoint ZerosOf(GraphBuilder& b, Endpoint value, DType dtype) const;
  bool IsSumOfRows(const Grad& grad) const;
  StatusOr<Endpoint> MultiplyAtOnce(GraphBuilder& b, Region& region, Node* product, Endpoint condition);
  GraphBuilder ForwardBuilder(const Loop& loop) const;
  // Adds an iteration counter to a forward loop; its Exit is the number of iterations.
  StatusOr<Carried> CountIterations(const Loop& loop);
  // Adds a variable to the forward loop; its initial value is the output of `start`.
  Carried CarryForward(GraphBuilder& b, const Loop& loop, Node* start) const;
  // Marks nodes from `first_id` on as part of the forward loop.
  void MarkForward(int first_id, const Loop& loop);

  // Forward values that backward nodes use (saved_values.cc). Assigns nodes from `first_id` on to the current region
  // and records the forward values that they use.
  void Adopt(int first_id);
  bool IsForward(const Node* node) const;
  bool IsInvariant(const Endpoint& e) const;
  bool BelongsForward(const Node& node) const;
  // Saves the borrowed values in the forward loop and restores them in the backward one.
  Status SaveValues(Region& region, const Loop& loop, Endpoint forward_pivot, Endpoint backward_condition);
  void PutAside(History& h, Endpoint e) const;
  // The value, or a placeholder in iterations in which it does not exist.
  StatusOr<Endpoint> AlwaysThere(History& h, GraphBuilder& f, Endpoint e, Node* pivot) const;
  // Returns the history with which the forward loop ends.
  StatusOr<Endpoint> PushInForwardLoop(History& h, Endpoint forward_pivot);
  Status PopInBackwardLoop(History& h, Endpoint history, Endpoint condition);
  // The counterpart of a forward value in the backward loop: a position in the history, alive exactly when the value
  // was.
  Endpoint HandOut(History& h, Endpoint e);

  Graph* const graph_;
  const std::vector<Endpoint>& ys_;
  const std::vector<Endpoint>& xs_;
  const GradientOptions& options_;
  GraphBuilder sums_;
  int first_new_id_ = 0;
  LoopForest forest_;
  Region root_;
  Region* region_ = &root_;
  absl::flat_hash_set<Endpoint> stopped_;
  absl::flat_hash_set<Endpoint> is_x_;
  absl::flat_hash_set<const Node*> added_forward_;
  absl::flat_hash_set<const Node*> border_;  // the loops' own control-flow nodes; visited with their loop
  absl::flat_hash_map<int, std::vector<LoopForest::Item>> orders_;  // by loop
  std::vector<bool> reached_node_;
  absl::flat_hash_map<Endpoint, std::vector<Grad>> parts_;
};

}  // namespace millrace
