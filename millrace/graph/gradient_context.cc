// GradientContext and helpers of gradient functions.
#include "millrace/graph/gradient.h"

namespace millrace {
namespace {

// How the gradient of a broadcast operand is reduced to the operand's shape.
struct Reduction {
  bool is_static = true;  // false: known only at run time
  std::vector<int32_t> axes = {};
  bool reshape = false;  // a dimension of size 1 was summed and must be restored
};

// The axes of the broadcast shape along which operand `a` was repeated to match `b`.
Reduction ReductionOf(const PartialShape& a, const PartialShape& b) {
  Reduction r;
  if (!a.known_rank() || !b.known_rank()) return {false};
  const int rank = std::max(a.rank(), b.rank());
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    if (ia < 0) {
      r.axes.push_back(i);
      continue;
    }
    const int64_t da = a.dim(ia);
    const int64_t db = ib < 0 ? 1 : b.dim(ib);
    // Not repeated: the other dimension is 1, or this one is known not to be 1.
    if (db == 1 || da > 1 || da == 0) continue;
    if (da < 0 || db < 0) return {false};
    r.axes.push_back(i);
    r.reshape = true;
  }
  return r;
}

Endpoint StaticShape(GraphBuilder& b, Endpoint x) {
  if (x.shape().IsFullyDefined()) {
    std::vector<int32_t> dims;
    for (int64_t d : x.shape().dims()) {
      if (d > std::numeric_limits<int32_t>::max()) return b.Shape(x);
      dims.push_back(static_cast<int32_t>(d));
    }
    return b.Ints(std::move(dims));
  }
  return b.Shape(x);
}

Endpoint ReduceStatic(GraphBuilder& b, const Reduction& r, Endpoint grad, Endpoint x) {
  if (r.axes.empty()) return grad;
  Endpoint sum = b.Op("Sum", {grad, b.Ints(r.axes)});
  return r.reshape ? b.Reshape(sum, StaticShape(b, x)) : sum;
}

}  // namespace

GradientContext::GradientContext(Graph* graph, Node* node, std::vector<Grad> output_grads)
    : GraphBuilder(graph),
      node_(node),
      output_grads_(std::move(output_grads)),
      input_grads_(static_cast<size_t>(node->num_inputs())) {}

Endpoint GradientContext::grad(int i) {
  Grad& g = output_grads_[i];
  if (g.IsNone()) {
    g = ZerosLike(output(i));
  } else if (g.IsSlices()) {
    g = Densify(*this, g);
  }
  return g.dense;
}

AttrList GradientContext::CopyAttrs(absl::Span<const char* const> names) const {
  AttrList attrs;
  for (const char* name : names) {
    if (const pb::AttrValue* value = node_->FindAttr(name)) attrs.emplace_back(name, *value);
  }
  return attrs;
}

void GradientContext::SetBroadcastGrads(int ia, Endpoint grad_a, int ib, Endpoint grad_b) {
  const Endpoint a = input(ia), b = input(ib);
  const Reduction ra = ReductionOf(a.shape(), b.shape());
  const Reduction rb = ReductionOf(b.shape(), a.shape());
  if (ra.is_static && rb.is_static) {
    if (grad_a) set_input_grad(ia, ReduceStatic(*this, ra, grad_a, a));
    if (grad_b) set_input_grad(ib, ReduceStatic(*this, rb, grad_b, b));
    return;
  }
  const Endpoint shape_a = Shape(a), shape_b = Shape(b);
  Node* axes = AddNode("BroadcastGradientArgs", {shape_a, shape_b});
  if (axes == nullptr) return;
  if (grad_a) {
    set_input_grad(
        ia, ra.is_static ? ReduceStatic(*this, ra, grad_a, a) : Reshape(Op("Sum", {grad_a, axes->output(0)}), shape_a));
  }
  if (grad_b) {
    set_input_grad(
        ib, rb.is_static ? ReduceStatic(*this, rb, grad_b, b) : Reshape(Op("Sum", {grad_b, axes->output(1)}), shape_b));
  }
}

Endpoint Densify(GraphBuilder& b, const Grad& grad) {
  if (!grad.IsSlices()) return grad.dense;
  // The number of rows is the first dimension of the dense shape.
  Endpoint zero = b.Ints({0}), one = b.Ints({1});
  Endpoint rows = b.Op("StridedSlice", {grad.dense_shape, zero, one, one}, {{"shrink_axis_mask", 1}});
  return b.Op("UnsortedSegmentSum", {grad.values, grad.indices, rows});
}

}  // namespace millrace
