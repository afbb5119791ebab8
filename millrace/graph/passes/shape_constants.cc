#include "millrace/graph/passes/shape_constants.h"

#include <algorithm>
#include <limits>

#include "millrace/graph/constant_ints.h"

namespace millrace {
namespace {

bool FromInts(DType dtype, absl::Span<const int64_t> values, bool scalar, Tensor* tensor) {
  const millrace::Shape shape = scalar ? Shape() : Shape({static_cast<int64_t>(values.size())});
  if (dtype == DType::kInt64) {
    *tensor = Tensor::FromSpan<int64_t>(values, shape);
    return true;
  }
  if (dtype != DType::kInt32) return false;
  *tensor = Tensor(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > std::numeric_limits<int32_t>::max()) return false;
    tensor->data<int32_t>()[i] = static_cast<int32_t>(values[i]);
  }
  return true;
}

// The value of a tensor that is itself a shape, as far as it can be evaluated statically.
bool ShapeBehind(const Endpoint& e, const ShapeContext::ConstantLookup& constants, PartialShape* shape) {
  std::vector<int64_t> dims;
  if (!EvaluateInts(e, constants, &dims)) return false;
  for (int64_t& d : dims) d = std::max(d, PartialShape::kUnknown);
  *shape = PartialShape(absl::MakeConstSpan(dims));
  return true;
}

// The axes along which `a` was repeated to match `b`; returns false if unknown dimensions leave it undetermined.
bool RepeatedAxes(const PartialShape& a, const PartialShape& b, std::vector<int64_t>* axes) {
  const int rank = std::max(a.rank(), b.rank());
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a.dim(ia);
    const int64_t db = ib < 0 ? 1 : b.dim(ib);
    if (ia >= 0 && (db == 1 || da > 1 || da == 0)) continue;
    if (ia >= 0 && (da < 0 || db < 0)) return false;
    axes->push_back(i);
  }
  return true;
}

// True if every consumer is a Sum that is reshaped immediately; then axes of size 1 may be included or omitted.
bool OnlyForReshapedSums(const Node& node, const std::vector<std::vector<Consumer>>& consumers, const Roles& roles) {
  for (const Consumer& c : consumers[node.id()]) {
    if (c.slot != 1 || !c.node->is_type("Sum") || roles.IsKept(c.node)) return false;
    for (const Consumer& d : consumers[c.node->id()]) {
      if (d.slot != 0 || !d.node->is_type("Reshape")) return false;
    }
  }
  return true;
}

bool FromBroadcast(const Node& node, const std::vector<std::vector<Consumer>>& consumers, const Roles& roles,
                   const ShapeContext::ConstantLookup& constants, std::vector<Tensor>* outputs) {
  PartialShape a, b;
  if (!ShapeBehind(node.input(0), constants, &a) || !ShapeBehind(node.input(1), constants, &b)) return false;
  std::vector<int64_t> ra, rb;
  if (!RepeatedAxes(a, b, &ra) || !RepeatedAxes(b, a, &rb) || !OnlyForReshapedSums(node, consumers, roles))
    return false;
  outputs->resize(2);
  return FromInts(node.output_type(0), ra, false, &(*outputs)[0]) &&
         FromInts(node.output_type(1), rb, false, &(*outputs)[1]);
}

}  // namespace

bool ConstantsFromShapes(const Node& node, const std::vector<std::vector<Consumer>>& consumers, const Roles& roles,
                         const ShapeContext::ConstantLookup& constants, std::vector<Tensor>* outputs) {
  if (node.is_type("BroadcastGradientArgs")) return FromBroadcast(node, consumers, roles, constants, outputs);
  if (!node.op().Has(OpTrait::kShapeOf)) return false;
  outputs->resize(static_cast<size_t>(node.num_outputs()));
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Endpoint output{const_cast<Node*>(&node), i};
    std::vector<int64_t> values;
    if (!EvaluateInts(output, constants, &values) ||
        std::find(values.begin(), values.end(), kUnknownInt) != values.end() ||
        !FromInts(node.output_type(i), values, node.output_shape(i).rank() == 0, &(*outputs)[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace millrace
