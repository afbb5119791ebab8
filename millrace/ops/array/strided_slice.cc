// StridedSlice (Python slicing) and StridedSliceGrad, which pads a slice with zeros to the original shape.
#include <algorithm>
#include <cstring>

#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/kernels/strided_slice_spec.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class StridedSliceKernel : public Kernel {
 public:
  explicit StridedSliceKernel(KernelInit& init) {
    auto masks = StridedSliceMasks::Of(init.node());
    if (masks.ok()) {
      masks_ = *masks;
    } else {
      init.Fail(masks.status());
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                        ResolveStridedSlice(input.shape(), ctx.input(1), ctx.input(2), ctx.input(3), masks_));
    const Shape shape = spec.shape.AsShape();
    if (spec.is_identity) {
      ctx.SetOutput(0, input.ViewAs(input.dtype(), shape));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const auto strides = RowMajorStrides(input.shape().dims());
    const auto out_strides = RowMajorStrides(spec.size);
    CopyBox box;
    for (int i = 0; i < input.rank(); ++i) {
      box.Add(spec.size[i], strides[i] * spec.stride[i], out_strides[i]);
    }
    return StridedCopy(ctx, std::move(box), input, spec.Offset(strides), out, 0);
  }

 private:
  StridedSliceMasks masks_;
};

Status StridedSliceShape(ShapeContext& c) {
  int64_t length = -1;
  for (int i = 1; i <= 3; ++i) {
    MR_ASSIGN_OR_RETURN(PartialShape list, c.WithRank(i, 1));
    if (list.dim(0) >= 0) length = list.dim(0);
  }
  if (!c.input(0).known_rank() || length < 0) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const StridedSliceMasks masks, StridedSliceMasks::Of(c.node()));
  MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                      ResolveStridedSlice(c.input(0), static_cast<int>(std::min<int64_t>(length, 1000)), c.constant(1),
                                          c.constant(2), c.constant(3), masks));
  c.set_output(0, spec.shape);
  return absl::OkStatus();
}

AttrList MaskAttrs(const GradientContext& c) {
  AttrList attrs;
  for (const char* name : {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"}) {
    attrs.emplace_back(name, c.AttrOr<int64_t>(name, 0));
  }
  return attrs;
}

Status StridedSliceGradient(GradientContext& c) {
  DType index = c.input(1).dtype();
  if (index == DType::kInt16) index = DType::kInt32;
  const Endpoint shape = c.Op("Shape", {c.input(0)}, {{"out_type", index}});
  c.set_input_grad(
      0, c.Op("StridedSliceGrad",
              {shape, c.Cast(c.input(1), index), c.Cast(c.input(2), index), c.Cast(c.input(3), index), c.grad()},
              MaskAttrs(c)));
  return absl::OkStatus();
}

class StridedSliceGradKernel : public Kernel {
 public:
  explicit StridedSliceGradKernel(KernelInit& init) {
    auto masks = StridedSliceMasks::Of(init.node());
    if (masks.ok()) {
      masks_ = *masks;
    } else {
      init.Fail(masks.status());
    }
  }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const IntList dims, ReadIntVector(ctx.input(0), "shape"));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    const Tensor& dy = ctx.input(4);
    MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                        ResolveStridedSlice(shape, ctx.input(1), ctx.input(2), ctx.input(3), masks_));
    if (dy.shape() != spec.shape.AsShape()) {
      return InvalidArgument("shape of dy was ", dy.shape().ToString(), " instead of ", spec.shape.ToString());
    }
    if (spec.is_identity) {
      ctx.SetOutput(0, dy.ViewAs(dy.dtype(), shape));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    MR_RETURN_IF_ERROR(ClearTensor(ctx, out));
    const auto strides = RowMajorStrides(shape.dims());
    const auto dy_strides = RowMajorStrides(spec.size);
    CopyBox box;
    for (int i = 0; i < shape.rank(); ++i) {
      box.Add(spec.size[i], dy_strides[i], strides[i] * spec.stride[i]);
    }
    return StridedCopy(ctx, std::move(box), dy, 0, out, spec.Offset(strides));
  }

 private:
  StridedSliceMasks masks_;
};

Status StridedSliceGradShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(0));
  c.set_output(0, shape);
  return absl::OkStatus();
}

Status StridedSliceGradGradient(GradientContext& c) {
  c.set_input_grad(4, c.Op("StridedSlice", {c.grad(), c.input(1), c.input(2), c.input(3)}, MaskAttrs(c)));
  return absl::OkStatus();
}

// Of a vector, in one dimension.
KnownInts StridedSliceInts(IntsContext& c) {
  const Node& node = c.node();
  const auto has_mask = [&](absl::string_view name) { return node.AttrOr<int64_t>(name, 0) != 0; };
  const auto has_bit = [&](absl::string_view name) { return (node.AttrOr<int64_t>(name, 0) & 1) != 0; };
  if (c.input_shape(0).rank() != 1 || has_mask("new_axis_mask") || has_mask("ellipsis_mask")) return std::nullopt;
  const KnownInts x = c.Input(0);
  const std::optional<int64_t> from = c.InputScalar(1), to = c.InputScalar(2), stride = c.InputScalar(3);
  if (!x || !from || !to || !stride || *stride == 0) return std::nullopt;
  const int64_t n = static_cast<int64_t>(x->size());
  const auto wrap = [n](int64_t i) { return i < 0 && i >= -n ? i + n : i; };
  int64_t begin = wrap(*from);
  if (has_bit("shrink_axis_mask")) {
    if (begin < 0 || begin >= n) return std::nullopt;
    return std::vector<int64_t>{(*x)[static_cast<size_t>(begin)]};
  }
  const int64_t low = *stride > 0 ? 0 : -1;
  const int64_t high = *stride > 0 ? n : n - 1;
  begin = has_bit("begin_mask") ? (*stride > 0 ? low : high) : std::clamp(begin, low, high);
  const int64_t end = has_bit("end_mask") ? (*stride > 0 ? high : low) : std::clamp(wrap(*to), low, high);
  std::vector<int64_t> result;
  // Beyond the vector's length a stride takes one element at most.
  const int64_t step = std::clamp<int64_t>(*stride, -n - 1, n + 1);
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) result.push_back((*x)[static_cast<size_t>(i)]);
  return result;
}

MILLRACE_OP(StridedSlice)
    .Input("input: T")
    .Input("begin: Index")
    .Input("end: Index")
    .Input("strides: Index")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Index: {int16, int32, int64}")
    .Attr("begin_mask: int = 0")
    .Attr("end_mask: int = 0")
    .Attr("ellipsis_mask: int = 0")
    .Attr("new_axis_mask: int = 0")
    .Attr("shrink_axis_mask: int = 0")
    .Shape(StridedSliceShape)
    .Gradient(StridedSliceGradient)
    .Ints(StridedSliceInts)
    .Summary("A strided slice of a tensor (Python slicing).");
MILLRACE_KERNEL(StridedSlice, kCpu, StridedSliceKernel);
MILLRACE_KERNEL(StridedSlice, kCuda, StridedSliceKernel);
MILLRACE_HOST_MEMORY(StridedSlice, "GPU", "begin");
MILLRACE_HOST_MEMORY(StridedSlice, "GPU", "end");
MILLRACE_HOST_MEMORY(StridedSlice, "GPU", "strides");
MILLRACE_HOST_KERNEL(StridedSlice, kCuda, "T", DType::kInt32);

MILLRACE_OP(StridedSliceGrad)
    .Input("shape: Index")
    .Input("begin: Index")
    .Input("end: Index")
    .Input("strides: Index")
    .Input("dy: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Index: {int32, int64}")
    .Attr("begin_mask: int = 0")
    .Attr("end_mask: int = 0")
    .Attr("ellipsis_mask: int = 0")
    .Attr("new_axis_mask: int = 0")
    .Attr("shrink_axis_mask: int = 0")
    .Shape(StridedSliceGradShape)
    .Gradient(StridedSliceGradGradient)
    .Summary("The gradient of StridedSlice.");
MILLRACE_KERNEL(StridedSliceGrad, kCpu, StridedSliceGradKernel);
MILLRACE_KERNEL(StridedSliceGrad, kCuda, StridedSliceGradKernel);
MILLRACE_HOST_MEMORY(StridedSliceGrad, "GPU", "shape");
MILLRACE_HOST_MEMORY(StridedSliceGrad, "GPU", "begin");
MILLRACE_HOST_MEMORY(StridedSliceGrad, "GPU", "end");
MILLRACE_HOST_MEMORY(StridedSliceGrad, "GPU", "strides");
MILLRACE_HOST_KERNEL(StridedSliceGrad, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
