// Automatic differentiation over graphs.
#pragma once

#include <vector>

#include "millrace/graph/graph_builder.h"

namespace millrace {

// A gradient: nothing, a dense tensor, or rows of one (values for the rows named by indices, of a
// tensor shaped dense_shape), as gathers give.
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

// What a gradient function sees: the node, the gradients of its outputs, and a builder whose nodes go
// under gradients/<node>. It sets one gradient for each input that has one; an input that is left alone
// gets none.
class GradientContext : public GraphBuilder {
 public:
  GradientContext(Graph* graph, Node* node, std::vector<Grad> output_grads);

  Node* node() const { return node_; }
  int num_inputs() const { return node_->num_inputs(); }
  int num_outputs() const { return node_->num_outputs(); }
  Endpoint input(int i) const { return node_->input(i); }
  Endpoint output(int i) const { return Endpoint{node_, i}; }

  // The gradient of output i, dense; zeros when nothing flowed back to it.
  Endpoint grad(int i = 0);
  // As it came: may be none or slices.
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

  // Sums `grad` down to the shapes of two operands that were broadcast, and sets inputs ia and ib.
  void SetBroadcastGrads(int ia, Endpoint grad_a, int ib, Endpoint grad_b);

 private:
  Node* node_;
  std::vector<Grad> output_grads_;
  std::vector<Grad> input_grads_;
};

struct GradientOptions {
  // Weights of the ys; ones when empty.
  std::vector<Grad> grad_ys = {};
  // Tensors that count as constants.
  std::vector<Endpoint> stop_gradients = {};
  // Name prefix of the new nodes.
  std::string name = "gradients";
  // Device asked for by the new nodes; empty: each asks for that of the node whose gradient it is of.
  std::string device = {};
};

// d(sum of ys)/d(xs), one for each x; none where x does not influence any y through differentiable
// ops. Adds the backward nodes to ys' graph. UNIMPLEMENTED names an op on the way that has no
// gradient function.
StatusOr<std::vector<Grad>> AddGradients(Graph* graph, const std::vector<Endpoint>& ys,
                                         const std::vector<Endpoint>& xs,
                                         const GradientOptions& options = {});

// A gradient as one dense tensor (slices are summed up).
Endpoint Densify(GraphBuilder& b, const Grad& grad);

}  // namespace millrace
