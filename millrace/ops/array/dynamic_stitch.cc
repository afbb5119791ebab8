// DynamicStitch and ParallelDynamicStitch: interleave slices by index; for a repeated index the last slice wins.
#include <algorithm>
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/ops/array/stitch_shape.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

class DynamicStitchKernel : public Kernel {
 public:
  explicit DynamicStitchKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const int n = ctx.num_inputs() / 2;
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeOfStitch(ctx, n));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    // Rows that no index refers to are zero.
    if (IsPlain(out->dtype())) std::memset(out->raw_data(), 0, out->TotalBytes());
    const int64_t slice = shape.Product(1, shape.rank());
    for (int i = 0; i < n; ++i) Scatter(ctx.input(i), ctx.input(n + i), slice, out);
    return absl::OkStatus();
  }

 private:
  static void Scatter(const Tensor& indices, const Tensor& data, int64_t slice, Tensor* out) {
    const int32_t* at = indices.data<int32_t>();
    const int64_t n = indices.num_elements();
    DispatchMove(data.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = data.raw<T>();
      T* to = out->raw<T>();
      if (slice == 1) {
        for (int64_t j = 0; j < n; ++j) to[at[j]] = from[j];
      } else {
        for (int64_t j = 0; j < n; ++j) std::copy_n(from + j * slice, slice, to + at[j] * slice);
      }
    });
  }
};

Status DynamicStitchShape(ShapeContext& c) {
  const int n = c.num_inputs() / 2;
  PartialShape slice;
  bool all_known = true;
  int64_t rows = 0;
  for (int i = 0; i < n; ++i) {
    const PartialShape &indices = c.input(i), &data = c.input(n + i);
    if (const Tensor* value = c.constant(i)) {
      MR_ASSIGN_OR_RETURN(const IntList list, ReadInts(*value, "indices"));
      for (int64_t index : list) rows = std::max(rows, index + 1);
    } else {
      all_known = false;
    }
    if (!indices.known_rank() || !data.known_rank()) continue;
    if (data.rank() < indices.rank()) {
      return InvalidArgument("data[", i, "] of shape ", data.ToString(), " does not start with the shape of indices[",
                             i, "], ", indices.ToString());
    }
    MR_RETURN_IF_ERROR(SubShape(data, 0, indices.rank()).MergeWith(indices).status());
    MR_ASSIGN_OR_RETURN(slice, slice.MergeWith(SubShape(data, indices.rank(), data.rank())));
  }
  c.set_output(0, JoinShapes(PartialShape({all_known ? rows : -1}), slice));
  return absl::OkStatus();
}

Status DynamicStitchGradient(GradientContext& c) {
  const int n = c.num_inputs() / 2;
  for (int i = 0; i < n; ++i) {
    c.set_input_grad(n + i, c.Op("GatherV2", {c.grad(), c.input(i), c.Scalar<int32_t>(0)}));
  }
  return absl::OkStatus();
}

MILLRACE_OP(DynamicStitch)
    .Input("indices: N * int32")
    .Input("data: N * T")
    .Output("merged: T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Shape(DynamicStitchShape)
    .Gradient(DynamicStitchGradient)
    .Summary("Interleaves slices of several tensors by index.");
MILLRACE_KERNEL(DynamicStitch, kCpu, DynamicStitchKernel);
MILLRACE_HOST_KERNEL(DynamicStitch, kCuda, "T", DType::kInt32);
MILLRACE_HOST_MEMORY(DynamicStitch, "GPU", "indices");

MILLRACE_OP(ParallelDynamicStitch)
    .Input("indices: N * int32")
    .Input("data: N * T")
    .Output("merged: T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Shape(DynamicStitchShape)
    .Gradient(DynamicStitchGradient)
    .Summary("Interleaves slices of several tensors by index.");
MILLRACE_KERNEL(ParallelDynamicStitch, kCpu, DynamicStitchKernel);
MILLRACE_HOST_MEMORY(ParallelDynamicStitch, "GPU", "indices");

}  // namespace

StatusOr<Shape> ShapeOfStitch(const KernelContext& ctx, int n) {
  int64_t rows = 0;
  Shape::Dims slice;
  for (int i = 0; i < n; ++i) {
    const Tensor& indices = ctx.input(i);
    const Tensor& data = ctx.input(n + i);
    const int prefix = indices.rank();
    if (data.rank() < prefix || data.shape().dims().first(prefix) != indices.shape().dims()) {
      return InvalidArgument("data[", i, "].shape = ", data.shape().ToString(), " does not start with indices[", i,
                             "].shape = ", indices.shape().ToString());
    }
    const auto rest = data.shape().dims().subspan(prefix);
    if (i == 0) {
      slice.assign(rest.begin(), rest.end());
    } else if (rest != absl::MakeConstSpan(slice)) {
      return InvalidArgument("Need data[0].shape[", ctx.input(0).rank(), ":] = data[", i, "].shape[", prefix,
                             ":], got data[0].shape = ", ctx.input(n).shape().ToString(), ", data[", i,
                             "].shape = ", data.shape().ToString());
    }
    int32_t least = 0, most = -1;
    for (int32_t index : indices.flat<int32_t>()) {
      least = std::min(least, index);
      most = std::max(most, index);
    }
    if (least < 0) return InvalidArgument("indices[", i, "] is out of range: it has the negative index ", least);
    rows = std::max(rows, int64_t{most} + 1);
  }
  slice.insert(slice.begin(), rows);
  return Shape::Make(slice);
}

}  // namespace millrace
