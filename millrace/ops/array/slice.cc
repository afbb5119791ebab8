// Slice: a box cut out of a tensor.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Turns sizes of -1 into what is left and checks that the box lies inside a dimension of `dim`.
StatusOr<int64_t> SliceSize(int i, int64_t begin, int64_t size, int64_t dim) {
  if (begin < 0 || begin > dim) {
    return InvalidArgument("Expected begin[", i, "] in [0, ", dim, "], but got ", begin);
  }
  if (size == -1) return dim - begin;
  if (size < 0 || size > dim - begin) {
    return InvalidArgument("Expected size[", i, "] in [0, ", dim - begin, "], but got ", size);
  }
  return size;
}

class SliceKernel : public Kernel {
 public:
  explicit SliceKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const int rank = input.rank();
    MR_ASSIGN_OR_RETURN(const IntList begin, ReadIntVector(ctx.input(1), "begin"));
    MR_ASSIGN_OR_RETURN(const IntList size, ReadIntVector(ctx.input(2), "size"));
    if (static_cast<int>(begin.size()) != rank || static_cast<int>(size.size()) != rank) {
      return InvalidArgument("Expected begin and size arguments to be 1-D tensors of size ", rank,
                             ", but got sizes ", begin.size(), " and ", size.size(), " instead.");
    }
    const auto strides = RowMajorStrides(input.shape().dims());
    Shape shape = input.shape();
    int64_t offset = 0;
    bool whole = true, rows = true;
    for (int i = 0; i < rank; ++i) {
      MR_ASSIGN_OR_RETURN(const int64_t n, SliceSize(i, begin[i], size[i], input.dim(i)));
      shape.set_dim(i, n);
      offset += begin[i] * strides[i];
      whole = whole && n == input.dim(i);
      rows = rows && (i == 0 || n == input.dim(i));
    }
    if (whole) {
      ctx.SetOutput(0, input);
      return absl::OkStatus();
    }
    // Rows that stay aligned are handed out as a part of the input's memory.
    if (rows && static_cast<size_t>(offset) * SizeOf(input.dtype()) % Buffer::kAlignment == 0 &&
        shape.num_elements() > 0) {
      ctx.SetOutput(0, input.Slice(begin[0], begin[0] + shape.dim(0)));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const auto out_strides = RowMajorStrides(shape.dims());
    CopyBox box;
    for (int i = 0; i < rank; ++i) box.Add(shape.dim(i), strides[i], out_strides[i]);
    return StridedCopy(ctx, input.dtype(), std::move(box), input.raw_data(), offset,
                       out->raw_data(), 0);
  }
};

Status SliceShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  // Any of the three tells the rank.
  int rank = in.rank();
  for (int i = 1; i <= 2; ++i) {
    MR_ASSIGN_OR_RETURN(PartialShape list, c.WithRank(i, 1));
    if (list.dim(0) < 0) continue;
    if (rank >= 0 && rank != list.dim(0)) {
      return InvalidArgument("begin and size must have ", rank, " elements, got ", list.dim(0));
    }
    if (list.dim(0) > Shape::kMaxRank) return InvalidArgument("too many dimensions: ", list.dim(0));
    rank = static_cast<int>(list.dim(0));
  }
  if (rank < 0) return absl::OkStatus();
  PartialShape out = PartialShape::UnknownOfRank(rank);
  const Tensor* begin_value = c.constant(1);
  const Tensor* size_value = c.constant(2);
  if (size_value != nullptr) {
    MR_ASSIGN_OR_RETURN(const IntList size, ReadIntVector(*size_value, "size"));
    IntList begin;
    if (begin_value != nullptr) {
      MR_ASSIGN_OR_RETURN(begin, ReadIntVector(*begin_value, "begin"));
    }
    for (int i = 0; i < rank; ++i) {
      if (size[i] < -1) return InvalidArgument("size[", i, "] must not be ", size[i]);
      out.set_dim(i, size[i]);
      if (!begin.empty() && in.known_rank() && in.dim(i) >= 0) {
        MR_ASSIGN_OR_RETURN(const int64_t n, SliceSize(i, begin[i], size[i], in.dim(i)));
        out.set_dim(i, n);
      }
    }
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

// The gradient put back in its place among zeros.
Status SliceGradient(GradientContext& c) {
  const DType index = c.input(1).dtype();
  const Endpoint whole = c.Op("Shape", {c.input(0)}, {{"out_type", index}});
  const Endpoint part = c.Op("Shape", {c.output(0)}, {{"out_type", index}});
  const Endpoint after = c.Sub(c.Sub(whole, part), c.input(1));
  const Endpoint paddings = c.Op("Pack", {c.input(1), after}, {{"axis", 1}});
  c.set_input_grad(0, c.Op("Pad", {c.grad(), paddings}));
  return absl::OkStatus();
}

MILLRACE_OP(Slice)
    .Input("input: T").Input("begin: Index").Input("size: Index").Output("output: T")
    .Attr("T: type").Attr("Index: {int32, int64}").Shape(SliceShape).Gradient(SliceGradient);
MILLRACE_KERNEL(Slice, kCpu, SliceKernel);

}  // namespace
}  // namespace millrace
