// Diag and DiagPart: a tensor as the diagonal of one of twice its rank, and back.
#include <algorithm>
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class DiagKernel : public Kernel {
 public:
  explicit DiagKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& diagonal = ctx.input(0);
    if (diagonal.rank() < 1) return InvalidArgument("Input must be at least rank 1, got 0");
    Shape::Dims dims(diagonal.shape().dims().begin(), diagonal.shape().dims().end());
    for (int i = 0; i < diagonal.rank(); ++i) dims.push_back(diagonal.dim(i));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const int64_t n = diagonal.num_elements();
    const size_t size = SizeOf(diagonal.dtype());
    const char* const from = static_cast<const char*>(diagonal.raw_data());
    char* const to = static_cast<char*>(out->raw_data());
    // Nearly all elements are zero: each row is cleared and gets its one element while it is in the cache.
    const int64_t grain = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, n * size));
    ctx.ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
      std::memset(to + begin * n * size, 0, (end - begin) * n * size);
      for (int64_t i = begin; i < end; ++i) std::memcpy(to + i * (n + 1) * size, from + i * size, size);
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kPieceBytes = 1 << 18;
};

class DiagPartKernel : public Kernel {
 public:
  explicit DiagPartKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const int half_rank = input.rank() / 2;
    if (input.rank() == 0 || input.rank() % 2 != 0) {
      return InvalidArgument("The rank of the tensor should be even and positive, got shape ",
                             input.shape().ToString());
    }
    for (int i = 0; i < half_rank; ++i) {
      if (input.dim(i) != input.dim(half_rank + i)) {
        return InvalidArgument("Invalid shape ", input.shape().ToString(), ": dimensions ", i, " and ", half_rank + i,
                               " do not match.");
      }
    }
    const Shape shape(input.shape().dims().first(half_rank));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const int64_t n = shape.num_elements();
    CopyBox box;
    box.Add(n, n + 1, 1);
    return StridedCopy(ctx, std::move(box), input, 0, out, 0);
  }
};

Status DiagShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 1));
  c.set_output(0, JoinShapes(in, in));
  return absl::OkStatus();
}

Status DiagPartShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  if (!in.known_rank()) return absl::OkStatus();
  if (in.rank() == 0 || in.rank() % 2 != 0) {
    return InvalidArgument("Input must have even and non-zero rank, got ", in.rank());
  }
  const int half_rank = in.rank() / 2;
  MR_ASSIGN_OR_RETURN(PartialShape out, SubShape(in, 0, half_rank).MergeWith(SubShape(in, half_rank, in.rank())));
  c.set_output(0, out);
  return absl::OkStatus();
}

Status DiagGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("DiagPart", {c.grad()}));
  return absl::OkStatus();
}

Status DiagPartGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("Diag", {c.grad()}));
  return absl::OkStatus();
}

MILLRACE_OP(Diag)
    .Input("diagonal: T")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double, int32, int64, complex64, complex128}")
    .Shape(DiagShape)
    .Gradient(DiagGradient)
    .Summary("A tensor of twice the rank with the input on its diagonal.");
MILLRACE_KERNEL(Diag, kCpu, DiagKernel);

MILLRACE_OP(DiagPart)
    .Input("input: T")
    .Output("diagonal: T")
    .Attr("T: {bfloat16, half, float, double, int32, int64, complex64, complex128}")
    .Shape(DiagPartShape)
    .Gradient(DiagPartGradient)
    .Summary("The diagonal of a tensor.");
MILLRACE_KERNEL(DiagPart, kCpu, DiagPartKernel);
MILLRACE_KERNEL(DiagPart, kCuda, DiagPartKernel);

}  // namespace
}  // namespace millrace
