// SparseSlice, SparseSliceGrad.
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

Status CheckVector(const Tensor& t, const char* name, int64_t n) {
  if (t.rank() == 1 && t.dim(0) == n) return absl::OkStatus();
  return InvalidArgument(name, " should be a vector of ", n, " elements but has shape ", t.shape().ToString());
}

class SparseSliceKernel : public Kernel {
 public:
  explicit SparseSliceKernel(KernelInit& init) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(ctx, 0));
    const int rank = input.rank();
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(3), "Input start", rank));
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(4), "Input size", rank));
    const int64_t *start = ctx.input(3).data<int64_t>(), *size = ctx.input(4).data<int64_t>();
    Shape::Dims shape;
    for (int d = 0; d < rank; ++d) {
      if (size[d] < 0) return InvalidArgument("size[", d, "] must not be negative: ", size[d]);
      int64_t left = 0;
      if (__builtin_sub_overflow(input.shape.dim(d), start[d], &left)) left = std::numeric_limits<int64_t>::max();
      shape.push_back(std::min(std::max<int64_t>(left, 0), size[d]));
    }
    std::vector<int64_t> inside;
    for (int64_t i = 0; i < input.count(); ++i) {
      bool keep = true;
      for (int d = 0; d < rank && keep; ++d) {
        int64_t end = 0;
        if (__builtin_add_overflow(start[d], shape[d], &end)) end = std::numeric_limits<int64_t>::max();
        keep = input.Row(i)[d] >= start[d] && input.Row(i)[d] < end;
      }
      if (keep) inside.push_back(i);
    }
    const auto n = static_cast<int64_t>(inside.size());
    MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, 0, n, rank));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({n})));
    for (int64_t i = 0; i < n; ++i) {
      for (int d = 0; d < rank; ++d) indices->data<int64_t>()[i * rank + d] = input.Row(inside[i])[d] - start[d];
    }
    const bool known = DispatchMove(values->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) values->raw<T>()[i] = input.values->raw<T>()[inside[i]];
    });
    if (!known) return Unimplemented("SparseSlice does not take ", DTypeName(values->dtype()));
    return SetShapeOutput(ctx, 2, shape);
  }
};

class SparseSliceGradKernel : public Kernel {
 public:
  explicit SparseSliceGradKernel(KernelInit& init) { NeedType(init, NumberTypes{}, init.input_type(0)); }

  Status Compute(KernelContext& ctx) override {
    const Tensor &grad = ctx.input(0), &from = ctx.input(1), &start = ctx.input(2), &to = ctx.input(3);
    if (from.rank() != 2 || to.rank() != 2 || from.dim(1) != to.dim(1)) {
      return InvalidArgument("input and output indices should be matrices of as many columns, but have shapes ",
                             from.shape().ToString(), " and ", to.shape().ToString());
    }
    MR_RETURN_IF_ERROR(CheckVector(start, "Input start", from.dim(1)));
    MR_RETURN_IF_ERROR(CheckVector(grad, "backprop_val_grad", to.dim(0)));
    const int64_t rank = from.dim(1);
    const int64_t *rows = from.data<int64_t>(), *kept = to.data<int64_t>(), *shift = start.data<int64_t>();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({from.dim(0)})));
    int64_t next = 0;
    DispatchMove(grad.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < from.dim(0); ++i) {
        bool same = next < to.dim(0);
        for (int64_t d = 0; d < rank && same; ++d) {
          same = rows[i * rank + d] == static_cast<int64_t>(static_cast<uint64_t>(kept[next * rank + d]) + shift[d]);
        }
        out->raw<T>()[i] = same ? grad.raw<T>()[next] : T();
        next += same;
      }
    });
    if (next == to.dim(0)) return absl::OkStatus();
    return Internal("Elements of backprop_val_grad aren't all propagated. Num elements:", to.dim(0), ", used: ", next);
  }
};

Status SparseSliceShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t rank, SparseRank(c, 0));
  SetSparseOutput(c, 0, -1, rank);
  return absl::OkStatus();
}
Status SparseSliceGradShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 2));
  c.set_output(0, PartialShape({indices.dim(0)}));
  return absl::OkStatus();
}

Status SparseSliceGradient(GradientContext& c) {
  c.set_input_grad(1, c.Op("SparseSliceGrad", {c.grad(1), c.input(0), c.input(3), c.output(0)}));
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseSlice)
    .Input("indices: int64")
    .Input("values: T")
    .Input("shape: int64")
    .Input("start: int64")
    .Input("size: int64")
    .Output("output_indices: int64")
    .Output("output_values: T")
    .Output("output_shape: int64")
    .Attr("T: type")
    .Shape(SparseSliceShape)
    .Gradient(SparseSliceGradient)
    .Summary("A slice of a sparse tensor");
MILLRACE_OP(SparseSliceGrad)
    .Input("backprop_val_grad: T")
    .Input("input_indices: int64")
    .Input("input_start: int64")
    .Input("output_indices: int64")
    .Output("val_grad: T")
    .Attr("T: numbertype")
    .Shape(SparseSliceGradShape)
    .NotDifferentiable()
    .Summary("The gradient of SparseSlice");

MILLRACE_KERNEL(SparseSlice, kCpu, SparseSliceKernel);
MILLRACE_KERNEL(SparseSliceGrad, kCpu, SparseSliceGradKernel);

}  // namespace millrace::sparse
