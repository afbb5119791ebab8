#include "millrace/ops/math/reduction.h"

#include <algorithm>

namespace millrace {
namespace {

std::optional<std::vector<int64_t>> IntsOf(const Tensor& value) {
  std::vector<int64_t> result;
  if (value.dtype() == DType::kInt32) {
    for (int32_t v : value.flat<int32_t>()) result.push_back(v);
  } else if (value.dtype() == DType::kInt64) {
    for (int64_t v : value.flat<int64_t>()) result.push_back(v);
  } else {
    return std::nullopt;
  }
  return result;
}

// The value of an endpoint that is a Const.
std::optional<std::vector<int64_t>> ConstInts(Endpoint e) {
  if (!e || !e.node->is_type("Const")) return std::nullopt;
  const StatusOr<Tensor> value = e.node->Attr<Tensor>("value");
  return value.ok() ? IntsOf(*value) : std::nullopt;
}

}  // namespace

Status ReductionShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  MR_ASSIGN_OR_RETURN(const bool keep_dims, c.Attr<bool>("keep_dims"));
  const PartialShape& axes_shape = c.input(1);
  if (axes_shape.known_rank() && axes_shape.rank() > 1) {
    return InvalidArgument("reduction axes must be a scalar or a vector, not of shape ", axes_shape.ToString());
  }
  if (!input.known_rank()) return absl::OkStatus();
  const int rank = input.rank();
  const Tensor* axes = c.constant(1);
  const std::optional<std::vector<int64_t>> values = axes == nullptr ? std::nullopt : IntsOf(*axes);
  if (!values.has_value()) {
    if (keep_dims) c.set_output(0, PartialShape::UnknownOfRank(rank));
    return absl::OkStatus();
  }
  std::vector<bool> reduced(rank, false);
  for (int64_t given : *values) {
    MR_ASSIGN_OR_RETURN(const int axis, CanonicalAxis(given, rank));
    reduced[axis] = true;
  }
  PartialShape output = PartialShape::Scalar();
  for (int d = 0; d < rank; ++d) {
    if (!reduced[d]) {
      output.AddDim(input.dim(d));
    } else if (keep_dims) {
      output.AddDim(1);
    }
  }
  c.set_output(0, output);
  return absl::OkStatus();
}

ReducedInput::ReducedInput(GradientContext& c) : c_(c) {
  const PartialShape& shape = c.input(0).shape();
  const std::optional<std::vector<int64_t>> given = ConstInts(c.input(1));
  if (!shape.known_rank() || !given.has_value()) return;
  std::vector<int32_t> axes;
  for (int64_t axis : *given) {
    const StatusOr<int> positive = CanonicalAxis(axis, shape.rank());
    if (!positive.ok()) {
      c.UpdateStatus(positive.status());
      return;
    }
    axes.push_back(*positive);
  }
  std::sort(axes.begin(), axes.end());
  axes_ = std::move(axes);
}

Endpoint ReducedInput::input_shape() {
  if (input_shape_) return input_shape_;
  const PartialShape& shape = c_.input(0).shape();
  const bool fits = shape.IsFullyDefined() &&
                    std::all_of(shape.dims().begin(), shape.dims().end(), [](int64_t d) { return d < (1LL << 31); });
  if (fits) {
    input_shape_ = c_.Ints(std::vector<int32_t>(shape.dims().begin(), shape.dims().end()));
  } else {
    input_shape_ = c_.Shape(c_.input(0));
  }
  return input_shape_;
}

Endpoint ReducedInput::KeptShape() {
  if (kept_shape_) return kept_shape_;
  const PartialShape& shape = c_.input(0).shape();
  if (axes_.has_value()) {
    std::vector<int32_t> keep(shape.rank(), 1), one(shape.rank(), 0), dims(shape.rank());
    for (int32_t axis : *axes_) {
      keep[axis] = 0;
      one[axis] = 1;
    }
    bool known = true;
    for (int d = 0; d < shape.rank(); ++d) {
      known &= keep[d] == 0 || (shape.dim(d) >= 0 && shape.dim(d) < (1LL << 31));
      dims[d] = keep[d] == 0 ? 1 : static_cast<int32_t>(shape.dim(d));
    }
    kept_shape_ = known ? c_.Ints(dims) : c_.Add(c_.Mul(input_shape(), c_.Ints(keep)), c_.Ints(one));
    return kept_shape_;
  }
  // Replaces each reduced axis of the shape by 1.
  const Endpoint rank = c_.Rank(c_.input(0));
  const Endpoint flat_axes = c_.Reshape(c_.Cast(c_.input(1), DType::kInt32), c_.Ints({-1}));
  const Endpoint axes = c_.Op("FloorMod", {c_.Add(flat_axes, rank), rank});
  const Endpoint all = c_.Op("Range", {c_.Scalar<int32_t>(0), rank, c_.Scalar<int32_t>(1)});
  kept_shape_ = c_.Op("DynamicStitch", {all, axes, input_shape(), c_.OnesLike(axes)}, {{"N", 2}});
  return kept_shape_;
}

Endpoint ReducedInput::Expand(Endpoint e) {
  if (c_.AttrOr<bool>("keep_dims", false)) return e;
  // Missing leading dimensions broadcast implicitly.
  if (axes_.has_value() && (axes_->empty() || axes_->back() + 1 == static_cast<int>(axes_->size()))) return e;
  return c_.Reshape(e, KeptShape());
}

Endpoint ReducedInput::BroadcastToInput(Endpoint e) { return c_.Op("BroadcastTo", {Expand(e), input_shape()}); }

Endpoint ReducedInput::Count(DType dtype) {
  const PartialShape& shape = c_.input(0).shape();
  if (axes_.has_value()) {
    int64_t count = 1;
    for (int32_t axis : *axes_) {
      count = shape.dim(axis) < 0 || count < 0 ? -1 : count * shape.dim(axis);
    }
    if (count >= 0) return c_.ScalarLike(static_cast<double>(count), dtype);
  }
  const Endpoint in = c_.Op("Size", {c_.input(0)}, {{"out_type", DType::kInt64}});
  const Endpoint out = c_.Op("Size", {c_.output(0)}, {{"out_type", DType::kInt64}});
  const Endpoint count = c_.Op("FloorDiv", {in, c_.Op("Maximum", {out, c_.Scalar<int64_t>(1)})});
  return c_.Cast(count, dtype);
}

}  // namespace millrace
