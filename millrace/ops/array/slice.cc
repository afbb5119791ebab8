// Slice: a box cut out of a tensor.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/slice_bounds.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class SliceKernel : public Kernel {
 public:
  explicit SliceKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const int rank = input.rank();
    IntList begin;
    MR_ASSIGN_OR_RETURN(const Shape shape, SlicedShape(input.shape(), ctx.input(1), ctx.input(2), &begin));
    const auto strides = RowMajorStrides(input.shape().dims());
    int64_t offset = 0;
    bool whole = true, rows = true;
    for (int i = 0; i < rank; ++i) {
      offset += begin[i] * strides[i];
      whole = whole && shape.dim(i) == input.dim(i);
      rows = rows && (i == 0 || shape.dim(i) == input.dim(i));
    }
    if (whole) {
      ctx.SetOutput(0, input);
      return absl::OkStatus();
    }
    // An aligned range of rows shares the input's memory.
    if (rows && static_cast<size_t>(offset) * SizeOf(input.dtype()) % Buffer::kAlignment == 0 &&
        shape.num_elements() > 0) {
      ctx.SetOutput(0, input.Slice(begin[0], begin[0] + shape.dim(0)));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const auto out_strides = RowMajorStrides(shape.dims());
    CopyBox box;
    for (int i = 0; i < rank; ++i) box.Add(shape.dim(i), strides[i], out_strides[i]);
    return StridedCopy(ctx, std::move(box), input, offset, out, 0);
  }
};

Status SliceShape(ShapeContext& c) { return SetSlicedShape(c, c.input(0), 1, 2); }

// The gradient, padded with zeros.
Status SliceGradient(GradientContext& c) {
  const DType index = c.input(1).dtype();
  const Endpoint whole = c.Op("Shape", {c.input(0)}, {{"out_type", index}});
  const Endpoint part = c.Op("Shape", {c.output(0)}, {{"out_type", index}});
  const Endpoint after = c.Sub(c.Sub(whole, part), c.input(1));
  const Endpoint paddings = c.Op("Pack", {c.input(1), after}, {{"axis", 1}});
  c.set_input_grad(0, c.Op("Pad", {c.grad(), paddings}));
  return absl::OkStatus();
}

// Of a vector.
KnownInts SliceInts(IntsContext& c) {
  if (c.input_shape(0).rank() != 1) return std::nullopt;
  const KnownInts x = c.Input(0);
  const std::optional<int64_t> begin = c.InputScalar(1), size = c.InputScalar(2);
  if (!x || !begin || !size) return std::nullopt;
  const int64_t n = static_cast<int64_t>(x->size());
  if (*begin < 0 || *begin > n) return std::nullopt;
  const int64_t count = *size == -1 ? n - *begin : *size;
  if (count < 0 || count > n - *begin) return std::nullopt;
  return std::vector<int64_t>(x->begin() + *begin, x->begin() + *begin + count);
}

MILLRACE_OP(Slice)
    .Input("input: T")
    .Input("begin: Index")
    .Input("size: Index")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Index: {int32, int64}")
    .Shape(SliceShape)
    .Gradient(SliceGradient)
    .Ints(SliceInts)
    .Summary("A contiguous slice of a tensor.");
MILLRACE_KERNEL(Slice, kCpu, SliceKernel);
MILLRACE_KERNEL(Slice, kCuda, SliceKernel);
MILLRACE_HOST_MEMORY(Slice, "GPU", "begin");
MILLRACE_HOST_MEMORY(Slice, "GPU", "size");
MILLRACE_HOST_KERNEL(Slice, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
