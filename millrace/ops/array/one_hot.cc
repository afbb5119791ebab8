// OneHot: one-hot vectors.
#include <algorithm>

#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/matrix_dims.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

StatusOr<int> HotAxis(int64_t axis, int rank) {
  if (axis < -1 || axis > rank) {
    return InvalidArgument("Expected axis to be -1 or between [0, ", rank + 1, ").  But received: ", axis);
  }
  return axis == -1 ? rank : static_cast<int>(axis);
}

// An index outside [0, depth) gives a row without an `on` value.
template <typename T, typename Index>
void Light(const Index* indices, int64_t outer, int64_t inner, int64_t depth, const T& on, const T& off, T* out) {
  std::fill_n(out, outer * depth * inner, off);
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t j = 0; j < inner; ++j) {
      const int64_t index = static_cast<int64_t>(indices[i * inner + j]);
      if (index >= 0 && index < depth) out[(i * depth + index) * inner + j] = on;
    }
  }
}

class OneHotKernel : public Kernel {
 public:
  explicit OneHotKernel(KernelInit& init) { init.Attr("axis", &axis_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &on = ctx.input(2), &off = ctx.input(3);
    MR_ASSIGN_OR_RETURN(const OneHotDims d, DimsOfOneHot(ctx, axis_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, d.shape));
    if (d.shape.num_elements() == 0) return absl::OkStatus();
    const bool known = DispatchMove(on.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchType(Types<uint8_t, int8_t, int32_t, int64_t>(), indices.dtype(), [&](auto index_tag) {
        using Index = typename decltype(index_tag)::type;
        Light<T, Index>(indices.data<Index>(), d.outer, d.inner, d.depth, *on.raw<T>(), *off.raw<T>(), out->raw<T>());
      });
    });
    return known ? absl::OkStatus() : InvalidArgument("OneHot does not take ", on.dtype());
  }

 private:
  int64_t axis_ = -1;
};

Status OneHotShape(ShapeContext& c) {
  for (int i = 1; i <= 3; ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  const PartialShape& in = c.input(0);
  int64_t depth = -1;
  if (const Tensor* value = c.constant(1)) {
    MR_ASSIGN_OR_RETURN(depth, ReadInt(*value, "depth"));
    if (depth < 0) return InvalidArgument("depth must be non-negative, got: ", depth);
  }
  if (!in.known_rank()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const int64_t wanted, c.Attr<int64_t>("axis"));
  MR_ASSIGN_OR_RETURN(const int axis, HotAxis(wanted, in.rank()));
  Shape::Dims dims(in.dims().begin(), in.dims().end());
  dims.insert(dims.begin() + axis, depth);
  c.set_output(0, PartialShape(absl::MakeConstSpan(dims)));
  return absl::OkStatus();
}

MILLRACE_OP(OneHot)
    .Input("indices: TI")
    .Input("depth: int32")
    .Input("on_value: T")
    .Input("off_value: T")
    .Output("output: T")
    .Attr("axis: int = -1")
    .Attr("T: type")
    .Attr("TI: {uint8, int8, int32, int64} = int64")
    .Shape(OneHotShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("One-hot vectors of indices.");
MILLRACE_KERNEL(OneHot, kCpu, OneHotKernel);
MILLRACE_HOST_MEMORY(OneHot, "GPU", "depth");

}  // namespace

StatusOr<OneHotDims> DimsOfOneHot(const KernelContext& ctx, int64_t axis_attr) {
  const Shape& indices = ctx.input(0).shape();
  const Tensor &on = ctx.input(2), &off = ctx.input(3);
  MR_ASSIGN_OR_RETURN(const int axis, HotAxis(axis_attr, indices.rank()));
  if (ctx.input(1).rank() != 0 || on.rank() != 0 || off.rank() != 0) {
    return InvalidArgument("depth, on_value and off_value must be scalars, got shapes ",
                           ctx.input(1).shape().ToString(), ", ", on.shape().ToString(), " and ",
                           off.shape().ToString());
  }
  const int64_t depth = ctx.input(1).scalar<int32_t>();
  if (depth < 0) return InvalidArgument("depth must be non-negative, got: ", depth);
  Shape::Dims dims(indices.dims().begin(), indices.dims().end());
  dims.insert(dims.begin() + axis, depth);
  MR_ASSIGN_OR_RETURN(Shape shape, Shape::Make(dims));
  return OneHotDims{indices.Product(0, axis), depth, indices.Product(axis, indices.rank()), std::move(shape)};
}

}  // namespace millrace
