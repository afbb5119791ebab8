// One call of AddGradients: the walk from the ys back to the xs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/loops.h"

namespace millrace {

// Visits everything in reverse order of computation, so that every use of a tensor has given its part before the
// tensor's own node is asked. A loop is visited as a whole (loop_gradient.cc): its gradient is a loop that
// runs the body's gradient as often, backwards.
class Backward {
 public:
  Backward(Graph* graph, const std::vector<Endpoint>& ys, const std::vector<Endpoint>& xs, const GradientOptions& options);
  StatusOr<std::vector<Grad>> Run();

 private:
  // A backward loop in the making.
  struct Region {
    int loop = LoopForest::kRoot;  // the forward loop
    Region* outer = nullptr;
    std::string frame_name;        // of the backward loop
    int64_t parallel_iterations = 10;
    Node* pivot = nullptr;         // runs once in each backward iteration
    std::optional<CondPaths> paths;
    // Inputs of backward nodes that are values of the forward loop: they are saved as they are made and
    // handed out in reverse order.
    struct Borrowed {
      Node* node;
      int input;
      Endpoint value;
    };
    std::vector<Borrowed> borrowed;
  };
  // A value that goes round a loop being made; see Carry.
  struct Carried {
    Node* merge = nullptr;
    Node* gate = nullptr;
    Node* exit = nullptr;
    Endpoint in_body() const { return gate->output(1); }
  };

  Status CheckEndpoint(const char* what, size_t i, const Endpoint& e) const;
  Status CheckArguments() const;
  Status ExpandCalls();
  bool IsReached(const Endpoint& e) const;
  void MarkReached(const std::vector<Node*>& order);
  Status Seed();
  // The sum of what flowed back to `e`, made once and kept.
  Grad Total(const Endpoint& e);
  Grad Sum(const std::vector<Grad>& parts);
  Grad SumSlices(const std::vector<Grad>& parts);
  Endpoint DenseTotal(const Endpoint& e);
  // Where the nodes go that belong to the gradient of `node`.
  const std::string& DeviceFor(const Node& node) const {
    return options_.device.empty() ? node.requested_device() : options_.device;
  }

  Status VisitAll(int loop);
  Status Visit(Node* node);
  Status Collect(const GradientContext& context);

  // Loops (loop_gradient.cc).
  Status VisitLoop(int loop);
  std::vector<Loop::Variable> LiveVariables(const Loop& loop) const;
  Node* EnterLoop(GraphBuilder& b, const Region& region, Endpoint value, bool constant) const;
  // A loop variable that starts as `enter`; Close says what the next iteration gets.
  Carried Carry(GraphBuilder& b, Node* enter, const PartialShape& shape) const;
  void Gate(GraphBuilder& b, Carried* carried, Endpoint condition) const;
  void Close(GraphBuilder& b, Carried* carried, Endpoint next) const;
  Endpoint ZerosOf(GraphBuilder& b, Endpoint value, DType dtype) const;
  bool IsSumOfRows(const Grad& grad) const;
  StatusOr<Endpoint> MultiplyAtOnce(GraphBuilder& b, Region& region, Node* product, Endpoint condition);
  GraphBuilder ForwardBuilder(const Loop& loop) const;
  // Counts the iterations of a forward loop; the number is what it leaves the loop with.
  StatusOr<Carried> CountIterations(const Loop& loop);
  // A variable of the forward loop that starts as what `op` gives.
  Carried CarryForward(GraphBuilder& b, const Loop& loop, Node* start) const;
  // Marks nodes from `first_id` on as part of the forward graph; `exits` leave their loop into the current region.
  void MarkForward(int first_id, const Loop& loop);

  // What backward nodes borrow (saved_values.cc).
  // Nodes from `first_id` on belong to the current region: what they take from the forward loop is noted.
  void Adopt(int first_id);
  bool IsForward(const Node* node) const;
  bool IsInvariant(const Endpoint& e) const;
  bool BelongsForward(const Node& node) const;
  // Saves what is borrowed in the forward loop and hands it out in the backward one.
  Status SaveValues(Region& region, const Loop& loop, Endpoint forward_pivot, Endpoint backward_condition);

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
  absl::flat_hash_set<const Node*> border_;  // what makes a loop go round; visited with the loop
  absl::flat_hash_map<int, std::vector<LoopForest::Item>> orders_;  // by loop
  std::vector<bool> reached_node_;
  absl::flat_hash_map<Endpoint, std::vector<Grad>> parts_;
};

}  // namespace millrace
