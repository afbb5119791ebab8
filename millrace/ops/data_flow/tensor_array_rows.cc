// TensorArray elements as rows of one tensor: gather and scatter, and their old forms pack and unpack.
#include <algorithm>

#include "millrace/graph/op_schema.h"
#include "millrace/ops/data_flow/rows.h"
#include "millrace/ops/data_flow/tensor_array.h"
#include "millrace/ops/data_flow/tensor_array_gradient.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Gather (inputs handle, indices, flow) and Pack (handle, flow).
template <bool kIndexed>
class GatherKernel : public Kernel {
 public:
  explicit GatherKernel(KernelInit& init) { init.Attr("element_shape", &element_shape_); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(TensorArray* const array, TensorArrayInput(ctx));
    if (array->dtype() != ctx.output_type(0)) {
      return InvalidArgument("TensorArray dtype is ", array->dtype(), " but Op requested dtype ", ctx.output_type(0),
                             ".");
    }
    MR_RETURN_IF_ERROR(array->element_shape().MergeWith(element_shape_).status());
    std::vector<Tensor> values;
    if constexpr (kIndexed) {
      const Tensor& indices = ctx.input(1);
      if (indices.rank() != 1) {
        return InvalidArgument("Expected indices to be a vector, but received shape: ", indices.shape().ToString());
      }
      const int64_t n = indices.num_elements();
      values.reserve(static_cast<size_t>(n));
      const int32_t* const index = indices.data<int32_t>();
      MR_RETURN_IF_ERROR(array->ReadMany(
          n, [index](int64_t i) { return int64_t{index[i]}; }, ctx.allocator(), &values));
    } else {
      MR_RETURN_IF_ERROR(array->ReadAll(ctx.allocator(), &values));
    }
    return Emit(ctx, values);
  }

 private:
  Status Emit(KernelContext& ctx, const std::vector<Tensor>& values) const {
    if (values.empty() && !element_shape_.IsFullyDefined()) {
      return Unimplemented("TensorArray has size zero, but element shape ", element_shape_.ToString(),
                           " is not fully defined. Currently only static shapes are supported when "
                           "packing zero-size "
                           "TensorArrays.");
    }
    const Shape shape = values.empty() ? element_shape_.AsShape() : values[0].shape();
    if (!element_shape_.IsCompatibleWith(shape)) {
      return InvalidArgument("TensorArray was passed element_shape ", element_shape_.ToString(),
                             " which does not match the Tensor at index 0: ", shape.ToString());
    }
    std::vector<const Tensor*> rows;
    rows.reserve(values.size());
    for (const Tensor& value : values) {
      if (value.shape() != shape) {
        return InvalidArgument("TensorArray has inconsistent shapes.  Index 0 has shape: ", shape.ToString(),
                               " but index ", rows.size(), " has shape: ", value.shape().ToString());
      }
      rows.push_back(&value);
    }
    StatusOr<Tensor> stacked = StackRows(ctx.output_type(0), shape, rows, ctx.allocator());
    if (!stacked.ok()) return stacked.status();
    ctx.SetOutput(0, *std::move(stacked));
    return absl::OkStatus();
  }

  PartialShape element_shape_;
};

// Scatter (inputs handle, indices, value, flow) and Unpack (handle, value, flow).
template <bool kIndexed>
class ScatterKernel : public Kernel {
 public:
  explicit ScatterKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(TensorArray* const array, TensorArrayInput(ctx));
    const Tensor& value = ctx.input(kIndexed ? 2 : 1);
    if (value.dtype() != array->dtype()) {
      return InvalidArgument("TensorArray dtype is ", array->dtype(), " but Op is trying to write dtype ",
                             value.dtype(), ".");
    }
    if (value.rank() == 0)
      return InvalidArgument("Input value for unpack must be at least a vector but received shape: []");
    const int64_t n = value.dim(0);
    const auto row = [&value](int64_t i) { return AlignedRow(value, i); };
    if constexpr (kIndexed) {
      const Tensor& indices = ctx.input(1);
      if (indices.rank() != 1) {
        return InvalidArgument("Expected indices to be a vector, but received shape: ", indices.shape().ToString());
      }
      if (indices.num_elements() != n) {
        return InvalidArgument("Expected len(indices) == values.shape[0], but saw: ", indices.num_elements(), " vs. ",
                               n);
      }
      const absl::Span<const int32_t> index = indices.flat<int32_t>();
      const int64_t size = array->size();
      const int64_t last = index.empty() ? -1 : *std::max_element(index.begin(), index.end());
      if (last >= size && !array->dynamic_size()) {
        return InvalidArgument("Max scatter index must be < array size (", last, " vs. ", size, ")");
      }
      MR_RETURN_IF_ERROR(array->WriteMany(
          n, [&index](int64_t i) { return int64_t{index[i]}; }, row));
    } else {
      const int64_t size = array->size();
      if (size != n && !(array->dynamic_size() && n > size)) {
        return InvalidArgument("Input value must have first dimension equal to the array size (", n, " vs. ", size,
                               ")");
      }
      MR_RETURN_IF_ERROR(array->WriteMany(
          n, [](int64_t i) { return i; }, row));
    }
    ctx.SetOutput(0, ctx.input(kIndexed ? 3 : 2));
    return absl::OkStatus();
  }
};

StatusOr<PartialShape> WithRows(const ShapeContext& c, int64_t n) {
  MR_ASSIGN_OR_RETURN(PartialShape element, c.Attr<PartialShape>("element_shape"));
  if (!element.known_rank()) return PartialShape();
  PartialShape rows({n});
  for (int64_t d : element.dims()) rows.AddDim(d);
  return rows;
}

Status GatherShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 1));
  MR_ASSIGN_OR_RETURN(PartialShape rows, WithRows(c, indices.dim(0)));
  c.set_output(0, rows);
  return absl::OkStatus();
}

Status PackShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape rows, WithRows(c, PartialShape::kUnknown));
  c.set_output(0, rows);
  return absl::OkStatus();
}

Status ScatterShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(2, 1).status());
  return ScalarShape(c);
}

Status UnpackShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(1, 1).status());
  return ScalarShape(c);
}

Status GatherGradient(GradientContext& c) {
  const GradientArray array = MakeGradientArray(c, c.input(0), c.input(2));
  c.set_input_grad(2, c.Op("TensorArrayScatter" + array.version, {array.handle, c.input(1), c.grad(0), array.flow}));
  return c.status();
}

// The element shape for gathering, as far as the value's shape determines it.
PartialShape RowShape(const Endpoint& value) {
  if (!value.shape().known_rank() || value.shape().rank() == 0) return PartialShape();
  return PartialShape(value.shape().dims().subspan(1));
}

Status ScatterGradient(GradientContext& c) {
  const Endpoint flow = c.grad(0);
  const GradientArray array = MakeGradientArray(c, c.input(0), flow);
  c.set_input_grad(2, c.Op("TensorArrayGather" + array.version, {array.handle, c.input(1), array.flow},
                           {{"dtype", BaseType(c.input(2).dtype())}, {"element_shape", RowShape(c.input(2))}}));
  c.set_input_grad(3, flow);
  return c.status();
}

Status PackGradient(GradientContext& c) {
  const GradientArray array = MakeGradientArray(c, c.input(0), c.input(1));
  c.set_input_grad(1, c.Op("TensorArrayUnpack", {array.handle, c.grad(0), array.flow}));
  return c.status();
}

Status UnpackGradient(GradientContext& c) {
  const Endpoint flow = c.grad(0);
  const GradientArray array = MakeGradientArray(c, c.input(0), flow);
  c.set_input_grad(1, c.Op("TensorArrayPack", {array.handle, array.flow},
                           {{"dtype", BaseType(c.input(1).dtype())}, {"element_shape", RowShape(c.input(1))}}));
  c.set_input_grad(2, flow);
  return c.status();
}

#define MR_ARRAY_GATHER(name, handle)                        \
  MILLRACE_OP(name)                                          \
      .Input("handle: " handle)                              \
      .Input("indices: int32")                               \
      .Input("flow_in: float")                               \
      .Output("value: dtype")                                \
      .Attr("dtype: type")                                   \
      .Attr("element_shape: shape = { unknown_rank: true }") \
      .Shape(GatherShape)                                    \
      .Gradient(GatherGradient)                              \
      .Summary("Stacks selected elements of a TensorArray.")
MR_ARRAY_GATHER(TensorArrayGather, "Ref(string)");
MR_ARRAY_GATHER(TensorArrayGatherV2, "string");
MR_ARRAY_GATHER(TensorArrayGatherV3, "resource").Stateful();

#define MR_ARRAY_SCATTER(name, handle) \
  MILLRACE_OP(name)                    \
      .Input("handle: " handle)        \
      .Input("indices: int32")         \
      .Input("value: T")               \
      .Input("flow_in: float")         \
      .Output("flow_out: float")       \
      .Attr("T: type")                 \
      .Shape(ScatterShape)             \
      .Gradient(ScatterGradient)       \
      .Summary("Writes rows to selected elements of a TensorArray.")
MR_ARRAY_SCATTER(TensorArrayScatter, "Ref(string)");
MR_ARRAY_SCATTER(TensorArrayScatterV2, "string");
MR_ARRAY_SCATTER(TensorArrayScatterV3, "resource").Stateful();

MILLRACE_OP(TensorArrayPack)
    .Input("handle: Ref(string)")
    .Input("flow_in: float")
    .Output("value: dtype")
    .Attr("dtype: type")
    .Attr("element_shape: shape = { unknown_rank: true }")
    .Shape(PackShape)
    .Gradient(PackGradient)
    .Summary("Stacks all elements of a TensorArray.");
MILLRACE_OP(TensorArrayUnpack)
    .Input("handle: Ref(string)")
    .Input("value: T")
    .Input("flow_in: float")
    .Output("flow_out: float")
    .Attr("T: type")
    .Shape(UnpackShape)
    .Gradient(UnpackGradient)
    .Summary("Writes rows to all elements of a TensorArray.");

MILLRACE_KERNEL(TensorArrayGather, kCpu, GatherKernel<true>);
MILLRACE_KERNEL(TensorArrayGatherV2, kCpu, GatherKernel<true>);
MILLRACE_KERNEL(TensorArrayGatherV3, kCpu, GatherKernel<true>);
MILLRACE_KERNEL(TensorArrayPack, kCpu, GatherKernel<false>);
MILLRACE_KERNEL(TensorArrayScatter, kCpu, ScatterKernel<true>);
MILLRACE_KERNEL(TensorArrayScatterV2, kCpu, ScatterKernel<true>);
MILLRACE_KERNEL(TensorArrayScatterV3, kCpu, ScatterKernel<true>);
MILLRACE_KERNEL(TensorArrayUnpack, kCpu, ScatterKernel<false>);

}  // namespace
}  // namespace millrace
