// Shapes before the tensors exist.
#pragma once

#include <functional>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// What a shape function sees of a node.
class ShapeContext {
 public:
  // Constant values where known: result is null when `e` is not constant.
  using ConstantLookup = std::function<const Tensor*(Endpoint e)>;

  ShapeContext(const Node& node, std::vector<PartialShape> inputs, ConstantLookup constants);

  const Node& node() const { return node_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  const PartialShape& input(int i) const { return inputs_[i]; }
  // The value of input i where it is a constant; otherwise null.
  const Tensor* constant(int i) const;
  // Input i as a list of integers (axes, paddings, sizes) where all of them are known, also through
  // Shape, Pack, slices and simple arithmetic on known shapes.
  bool ConstantInts(int i, std::vector<int64_t>* values) const;
  // Input i taken as a shape, evaluated as far as it goes; a dimension that is -1 or not known is unknown.
  // Of unknown rank when nothing is known.
  StatusOr<PartialShape> ShapeFromInput(int i) const;

  template <typename T>
  StatusOr<T> Attr(absl::string_view name) const {
    return node_.Attr<T>(name);
  }

  void set_output(int i, PartialShape shape) { outputs_[i] = std::move(shape); }
  const std::vector<PartialShape>& outputs() const { return outputs_; }

  // Input i checked to have that rank; unknown dimensions when its rank is unknown.
  StatusOr<PartialShape> WithRank(int i, int rank) const;
  StatusOr<PartialShape> WithRankAtLeast(int i, int rank) const;

  // What a resource or ref input points to, where known: the shape that variable was declared with.
  PartialShape HandleShape(int i) const;

 private:
  const Node& node_;
  std::vector<PartialShape> inputs_;
  std::vector<PartialShape> outputs_;
  ConstantLookup constants_;
};

// Common shape functions.
Status UnknownShape(ShapeContext& c);      // every output of unknown rank
Status ScalarShape(ShapeContext& c);       // every output a scalar
Status UnchangedShape(ShapeContext& c);    // output 0 (and all others) as input 0
Status BroadcastShape(ShapeContext& c);    // output 0 from broadcasting inputs 0 and 1
Status NoOutputs(ShapeContext& c);
Status AttrShape(ShapeContext& c);         // output 0 from the attr "shape"

// NumPy's rules with unknown dimensions. INVALID_ARGUMENT when they do not fit.
StatusOr<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b);

// Axis in [-rank, rank) made positive; INVALID_ARGUMENT otherwise.
StatusOr<int> CanonicalAxis(int64_t axis, int rank);

// Infers the output shapes of one node from those of its inputs. The error names node and op.
Status InferNodeShapes(Graph* graph, Node* node);

// Infers everything in topological order. With `lenient`, a node whose function fails gets unknown
// shapes instead (its kernel will say what is wrong when it runs).
Status InferShapes(Graph* graph, bool lenient);

}  // namespace millrace
