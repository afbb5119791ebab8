// Automatic differentiation over graphs.
#pragma once

#include <vector>

#include "millrace/graph/graph_builder.h"

namespace millrace {

// A gradient: none, a dense tensor, or IndexedSlices (rows `values` at `indices` of a tensor of shape dense_shape), as
// gathers produce.
struct Grad {
  Endpoint dense;
  Endpoint values;
  Endpoint indices;
  Endpoint dense_shape;

  Grad() = default;
  Grad(Endpoint e) : dense(e) {}  // NOLINT: a dense gradient
  static Grad Slices(Endpoint values, Endpoint indices, Endpoint dense_shape) {
    Grad g;
    g.values = values;
    g.indices = indices;
    g.dense_shape = dense_shape;
    return g;
  }
  bool IsNone() const { return !dense && !values; }
  bool IsSlices() const { return static_cast<bool>(values); }
};

// The argument of a gradient function: the node, the gradients of its outputs, and a builder that names its nodes
// gradients/<node>/... The function sets the gradient of each input that has one; the others get none.
class GradientContext : public GraphBuilder {
 public:
  GradientContext(Graph* graph, Node* node, std::vector<Grad> output_grads);

  Node* node() const { return node_; }
  int num_inputs() const { return node_->num_inputs(); }
  int num_outputs() const { return node_->num_outputs(); }
  Endpoint input(int i) const { return node_->input(i); }
  Endpoint output(int i) const { return Endpoint{node_, i}; }

  // The gradient of output i as a dense tensor; zeros if it has none.
  Endpoint grad(int i = 0);
  // The gradient of output i unconverted: may be none or slices.
  const Grad& raw_grad(int i = 0) const { return output_grads_[i]; }

  void set_input_grad(int i, Grad grad) { input_grads_[i] = grad; }
  const std::vector<Grad>& input_grads() const { return input_grads_; }

  template <typename T>
  StatusOr<T> Attr(absl::string_view name) const {
    return node_->Attr<T>(name);
  }
  template <typename T>
  T AttrOr(absl::string_view name, T otherwise) const {
    return node_->AttrOr<T>(name, std::move(otherwise));
  }

  // The node's own attributes of these names, for an op of the gradient that has them too. Those that it lacks are left
  // out.
  AttrList CopyAttrs(absl::Span<const char* const> names) const;

  // Sums `grad` down to the shapes of two operands that were broadcast, and sets inputs ia and ib.
  void SetBroadcastGrads(int ia, Endpoint grad_a, int ib, Endpoint grad_b);

 private:
  Node* node_;
  std::vector<Grad> output_grads_;
  std::vector<Grad> input_grads_;
};

struct GradientOptions {
  // Initial gradients of the ys; ones if empty.
  std::vector<Grad> grad_ys = {};
  // Tensors that are treated as constants.
  std::vector<Endpoint> stop_gradients = {};
  // Name prefix of the new nodes.
  std::string name = "gradients";
  // Requested device of the new nodes. If empty, each requests the device of the forward node whose gradient it
  // computes.
  std::string device = {};
};

// Returns d(sum of ys)/dx for each x; none if x does not influence any y through differentiable ops. Adds the backward
// nodes to `graph`. UNIMPLEMENTED, naming the op, if an op in between has no gradient function.
StatusOr<std::vector<Grad>> AddGradients(Graph* graph, const std::vector<Endpoint>& ys, const std::vector<Endpoint>& xs,
                                         const GradientOptions& options = {});

// Converts a gradient to a dense tensor (slices are summed).
Endpoint Densify(GraphBuilder& b, const Grad& grad);

}  // namespace millrace
