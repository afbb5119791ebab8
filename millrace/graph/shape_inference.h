// Static shape inference.
#pragma once

#include <functional>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// The argument of a shape function.
class ShapeContext {
 public:
  // Returns the value of `e` if it is a constant, otherwise null.
  using ConstantLookup = std::function<const Tensor*(Endpoint e)>;

  ShapeContext(const Node& node, std::vector<PartialShape> inputs, ConstantLookup constants);

  const Node& node() const { return node_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  const PartialShape& input(int i) const { return inputs_[i]; }
  // The value of input i if it is a constant, otherwise null.
  const Tensor* constant(int i) const;
  // Input i as a list of integers (axes, paddings, sizes) if all of them are known, including through Shape, Pack,
  // slices and simple arithmetic on known shapes.
  bool ConstantInts(int i, std::vector<int64_t>* values) const;
  // Input i interpreted as a shape, as far as it can be evaluated: a dimension that is -1 or not known is unknown, and
  // the rank is unknown if nothing is known.
  StatusOr<PartialShape> ShapeFromInput(int i) const;

  template <typename T>
  StatusOr<T> Attr(absl::string_view name) const {
    return node_.Attr<T>(name);
  }

  void set_output(int i, PartialShape shape) { outputs_[i] = std::move(shape); }
  const std::vector<PartialShape>& outputs() const { return outputs_; }

  // The shape of input i, checked to have that rank; all dimensions unknown if its rank is unknown.
  StatusOr<PartialShape> WithRank(int i, int rank) const;
  StatusOr<PartialShape> WithRankAtLeast(int i, int rank) const;

  // The declared shape of the variable that a resource or ref input refers to, if known.
  PartialShape HandleShape(int i) const;

 private:
  const Node& node_;
  std::vector<PartialShape> inputs_;
  std::vector<PartialShape> outputs_;
  ConstantLookup constants_;
};

// Common shape functions.
Status UnknownShape(ShapeContext& c);    // every output of unknown rank
Status ScalarShape(ShapeContext& c);     // every output a scalar
Status UnchangedShape(ShapeContext& c);  // output 0 (and all others) as input 0
Status BroadcastShape(ShapeContext& c);  // output 0 from broadcasting inputs 0 and 1
Status NoOutputs(ShapeContext& c);
Status AttrShape(ShapeContext& c);  // output 0 from the attr "shape"

// NumPy broadcasting with unknown dimensions. INVALID_ARGUMENT if the shapes are incompatible.
StatusOr<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b);

// Maps an axis in [-rank, rank) to [0, rank); INVALID_ARGUMENT if it is out of range.
StatusOr<int> CanonicalAxis(int64_t axis, int rank);

// Infers the output shapes of one node from those of its inputs. The error names node and op.
Status InferNodeShapes(Graph* graph, Node* node);

// Infers all shapes in topological order. With `lenient`, a node whose shape function fails gets unknown shapes; its
// kernel reports the error when it runs.
Status InferShapes(Graph* graph, bool lenient);

}  // namespace millrace
