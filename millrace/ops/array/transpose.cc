// Transpose, ConjugateTranspose and InvertPermutation.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Makes perm's values non-negative and checks that it is a permutation of [0, rank).
Status CheckPermutation(int rank, IntList& perm) {
  if (static_cast<int>(perm.size()) != rank) {
    return InvalidArgument("transpose expects a vector of size ", rank, ". But input(1) is a vector of size ",
                           perm.size());
  }
  absl::InlinedVector<bool, 8> seen(rank, false);
  for (int64_t& p : perm) {
    const int64_t given = p;
    if (p < 0) p += rank;
    if (p < 0 || p >= rank) {
      return InvalidArgument(given, " is out of range [0 .. ", rank, ")");
    }
    seen[p] = true;
  }
  for (int i = 0; i < rank; ++i) {
    if (!seen[i]) return InvalidArgument(i, " is missing from {", absl::StrJoin(perm, ","), "}.");
  }
  return absl::OkStatus();
}

template <typename T>
void Conjugate(KernelContext& ctx, Tensor* tensor) {
  T* p = tensor->data<T>();
  ctx.ParallelFor(tensor->num_elements(), 1 << 15, [p](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p[i] = std::conj(p[i]);
  });
}

class TransposeKernel : public Kernel {
 public:
  explicit TransposeKernel(KernelInit& init)
      : conjugate_(init.node().is_type("ConjugateTranspose") && IsComplex(init.input_type(0))) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const int rank = input.rank();
    MR_ASSIGN_OR_RETURN(IntList perm, ReadIntVector(ctx.input(1), "perm"));
    MR_RETURN_IF_ERROR(CheckPermutation(rank, perm));
    Shape shape = input.shape();
    // Moving dimensions of size one does not move elements.
    bool moves = false;
    int64_t last = -1;
    for (int i = 0; i < rank; ++i) {
      shape.set_dim(i, input.dim(static_cast<int>(perm[i])));
      if (shape.dim(i) == 1) continue;
      moves = moves || perm[i] < last;
      last = perm[i];
    }
    if (!moves && !conjugate_) {
      ctx.SetOutput(0, input.ViewAs(input.dtype(), shape));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const auto from = RowMajorStrides(input.shape().dims());
    const auto to = RowMajorStrides(shape.dims());
    CopyBox box;
    for (int i = 0; i < rank; ++i) box.Add(shape.dim(i), from[perm[i]], to[i]);
    MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), input, 0, out, 0));
    if (conjugate_ && input.dtype() == DType::kComplex64) Conjugate<std::complex<float>>(ctx, out);
    if (conjugate_ && input.dtype() == DType::kComplex128) Conjugate<std::complex<double>>(ctx, out);
    return absl::OkStatus();
  }

 private:
  const bool conjugate_;
};

Status TransposeShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  MR_ASSIGN_OR_RETURN(PartialShape list, c.WithRank(1, 1));
  int rank = in.rank();
  if (list.dim(0) >= 0) {
    if (rank >= 0 && rank != list.dim(0)) {
      return InvalidArgument("perm must have ", rank, " elements, got ", list.dim(0));
    }
    if (list.dim(0) > Shape::kMaxRank) return InvalidArgument("too many dimensions: ", list.dim(0));
    rank = static_cast<int>(list.dim(0));
  }
  c.set_output(0, rank < 0 ? PartialShape() : PartialShape::UnknownOfRank(rank));
  const Tensor* value = c.constant(1);
  if (!in.known_rank() || value == nullptr) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(IntList perm, ReadIntVector(*value, "perm"));
  MR_RETURN_IF_ERROR(CheckPermutation(rank, perm));
  PartialShape out = in;
  for (int i = 0; i < rank; ++i) out.set_dim(i, in.dim(static_cast<int>(perm[i])));
  c.set_output(0, out);
  return absl::OkStatus();
}

Status TransposeGradient(GradientContext& c) {
  const Endpoint back = c.Op("InvertPermutation", {c.input(1)});
  c.set_input_grad(0, c.Op(c.node()->type(), {c.grad(), back}));
  return absl::OkStatus();
}

class InvertPermutationKernel : public Kernel {
 public:
  explicit InvertPermutationKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (x.rank() != 1) {
      return InvalidArgument("invert_permutation expects a 1D vector, got shape ", x.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, x.shape()));
    Status status;
    DispatchType(IndexTypes(), x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      status = Invert(x.flat<T>(), out->flat<T>());
    });
    return status;
  }

 private:
  template <typename T>
  static Status Invert(absl::Span<const T> x, absl::Span<T> y) {
    std::fill(y.begin(), y.end(), T{-1});
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] < 0 || static_cast<size_t>(x[i]) >= x.size()) {
        return InvalidArgument(x[i], " is not between 0 and ", x.size());
      }
      if (y[x[i]] != -1) return InvalidArgument(x[i], " is duplicated in the input.");
      y[x[i]] = static_cast<T>(i);
    }
    return absl::OkStatus();
  }
};

Status InvertPermutationShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(0, 1));
  c.set_output(0, shape);
  return absl::OkStatus();
}

MILLRACE_OP(Transpose)
    .Input("x: T")
    .Input("perm: Tperm")
    .Output("y: T")
    .Attr("T: type")
    .Attr("Tperm: {int32, int64} = int32")
    .Shape(TransposeShape)
    .Gradient(TransposeGradient)
    .Summary("Permutes the dimensions of a tensor.");
MILLRACE_KERNEL(Transpose, kCpu, TransposeKernel);
MILLRACE_KERNEL(Transpose, kCuda, TransposeKernel);
MILLRACE_HOST_MEMORY(Transpose, "GPU", "perm");
MILLRACE_HOST_KERNEL(Transpose, kCuda, "T", DType::kInt32);

MILLRACE_OP(ConjugateTranspose)
    .Input("x: T")
    .Input("perm: Tperm")
    .Output("y: T")
    .Attr("T: type")
    .Attr("Tperm: {int32, int64} = int32")
    .Shape(TransposeShape)
    .Gradient(TransposeGradient)
    .Summary("Permutes the dimensions and conjugates.");
MILLRACE_KERNEL(ConjugateTranspose, kCpu, TransposeKernel);

MILLRACE_OP(InvertPermutation)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {int32, int64} = int32")
    .Shape(InvertPermutationShape)
    .NotDifferentiable()
    .Summary("The inverse of a permutation.");
MILLRACE_KERNEL(InvertPermutation, kCpu, InvertPermutationKernel);
MILLRACE_HOST_KERNEL(InvertPermutation, kCuda, "T", DType::kInt64);
MILLRACE_HOST_KERNEL(InvertPermutation, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
