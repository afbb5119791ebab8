// SparseAdd, SparseAddGrad, SparseSparseMaximum, SparseSparseMinimum: two sparse tensors of one shape, entry by entry.
#include <cmath>
#include <utility>

#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

// One entry of the union: where it is in either, or -1.
struct Pair {
  int64_t a, b;
};

std::vector<Pair> Merge(const SparseInput& a, const SparseInput& b) {
  std::vector<Pair> pairs;
  pairs.reserve(a.count() + b.count());
  int64_t i = 0, j = 0;
  while (i < a.count() || j < b.count()) {
    const int order = i == a.count() ? 1 : j == b.count() ? -1 : CompareRows(a.Row(i), b.Row(j), a.rank());
    pairs.push_back({order <= 0 ? i : -1, order >= 0 ? j : -1});
    i += order <= 0;
    j += order >= 0;
  }
  return pairs;
}

Status CheckSameShape(const SparseInput& a, const SparseInput& b) {
  if (a.shape == b.shape) return absl::OkStatus();
  return InvalidArgument(a.rank() != b.rank() ? "Operands do not have the same ranks; got shapes: "
                                              : "Operands' shapes do not match: got ",
                         a.shape.ToString(), " and ", b.shape.ToString());
}

template <typename T>
void CopyRow(const SparseInput& a, const SparseInput& b, const Pair& pair, T* to) {
  std::copy_n(pair.a >= 0 ? a.Row(pair.a) : b.Row(pair.b), a.rank(), to);
}

using AddTypes = JoinTypes<Types<float, double, int8_t, int16_t, int32_t, int64_t>, ComplexTypes>::type;

class SparseAddKernel : public Kernel {
 public:
  explicit SparseAddKernel(KernelInit& init) {
    NeedType(init, AddTypes{}, init.input_type(1));
    const DType real = init.input_type(1) == DType::kComplex64    ? DType::kFloat
                       : init.input_type(1) == DType::kComplex128 ? DType::kDouble
                                                                  : init.input_type(1);
    if (init.input_type(6) != real) FailDType(init, init.input_type(6));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput a, ReadSparse(ctx, 0));
    MR_ASSIGN_OR_RETURN(const SparseInput b, ReadSparse(ctx, 3));
    MR_RETURN_IF_ERROR(CheckSameShape(a, b));
    if (ctx.input(6).rank() != 0) {
      return InvalidArgument("The magnitude threshold must be a scalar: got shape ", ctx.input(6).shape().ToString());
    }
    Status status;
    DispatchType(AddTypes{}, a.values->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      status = Add<T>(ctx, a, b);
    });
    MR_RETURN_IF_ERROR(status);
    return SetShapeOutput(ctx, 2, a.shape.dims());
  }

 private:
  template <typename T>
  static Status Add(KernelContext& ctx, const SparseInput& a, const SparseInput& b) {
    using Real = decltype(std::real(std::declval<T>()));
    using R = std::conditional_t<std::is_integral_v<T>, T, Real>;
    const R threshold = ctx.input(6).scalar<R>();
    std::vector<Pair> kept;
    std::vector<T> sums;
    for (const Pair& pair : Merge(a, b)) {
      T sum = T(0);
      if (pair.a >= 0) sum = a.values->data<T>()[pair.a];
      if (pair.b >= 0) sum = static_cast<T>(sum + b.values->data<T>()[pair.b]);
      // The threshold applies to sums of two entries; a single one is kept.
      bool keep = pair.a < 0 || pair.b < 0;
      if (keep) {
      } else if constexpr (std::is_integral_v<T>) {
        keep = threshold <= static_cast<T>(sum < 0 ? -sum : sum);
      } else {
        keep = threshold <= std::abs(sum);
      }
      if (!keep) continue;
      kept.push_back(pair);
      sums.push_back(sum);
    }
    const auto n = static_cast<int64_t>(kept.size());
    MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, 0, n, a.rank()));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({n})));
    for (int64_t i = 0; i < n; ++i) CopyRow(a, b, kept[i], indices->data<int64_t>() + i * a.rank());
    std::copy(sums.begin(), sums.end(), values->data<T>());
    return absl::OkStatus();
  }
};

class SparseAddGradKernel : public Kernel {
 public:
  explicit SparseAddGradKernel(KernelInit& init) { NeedType(init, AddTypes{}, init.input_type(0)); }

  Status Compute(KernelContext& ctx) override {
    const Tensor &grad = ctx.input(0), &sum = ctx.input(3);
    for (int i = 1; i <= 3; ++i) {
      if (ctx.input(i).rank() != 2) {
        return InvalidArgument("indices should be matrices but received shape ", ctx.input(i).shape().ToString());
      }
      if (ctx.input(i).dim(1) != sum.dim(1)) {
        return InvalidArgument("The densified operands should have the same ndims; got ", ctx.input(i).dim(1), " and ",
                               sum.dim(1));
      }
    }
    if (grad.rank() != 1 || grad.dim(0) != sum.dim(0)) {
      return InvalidArgument("backprop_val_grad should be a vector of ", sum.dim(0), " elements but has shape ",
                             grad.shape().ToString());
    }
    const int width = static_cast<int>(sum.dim(1));
    for (int which = 0; which < 2; ++which) {
      const Tensor& indices = ctx.input(1 + which);
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(which, Shape({indices.dim(0)})));
      DispatchMove(grad.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        int64_t at = 0;
        for (int64_t i = 0; i < indices.dim(0); ++i) {
          const int64_t* row = indices.data<int64_t>() + i * width;
          const int64_t* sums = sum.data<int64_t>();
          while (at < sum.dim(0) && CompareRows(sums + at * width, row, width) < 0) ++at;
          const bool there = at < sum.dim(0) && CompareRows(sums + at * width, row, width) == 0;
          out->raw<T>()[i] = there ? grad.raw<T>()[at] : T();
        }
      });
    }
    return absl::OkStatus();
  }
};

template <bool kMaximum>
class SparseExtremeKernel : public Kernel {
 public:
  explicit SparseExtremeKernel(KernelInit& init) { NeedType(init, RealTypes{}, init.input_type(1)); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput a, ReadSparse(ctx, 0));
    MR_ASSIGN_OR_RETURN(const SparseInput b, ReadSparse(ctx, 3));
    MR_RETURN_IF_ERROR(CheckSameShape(a, b));
    const std::vector<Pair> pairs = Merge(a, b);
    const auto n = static_cast<int64_t>(pairs.size());
    MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, 0, n, a.rank()));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({n})));
    DispatchType(RealTypes{}, a.values->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) {
        CopyRow(a, b, pairs[i], indices->data<int64_t>() + i * a.rank());
        const T x = pairs[i].a >= 0 ? a.values->data<T>()[pairs[i].a] : T(0);
        const T y = pairs[i].b >= 0 ? b.values->data<T>()[pairs[i].b] : T(0);
        values->data<T>()[i] = kMaximum ? (x < y ? y : x) : (y < x ? y : x);
      }
    });
    return absl::OkStatus();
  }
};

Status SparseAddShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t a, SparseRank(c, 0));
  MR_ASSIGN_OR_RETURN(const int64_t b, SparseRank(c, 3));
  SetSparseOutput(c, 0, -1, std::max(a, b));
  return absl::OkStatus();
}
Status SparseExtremeShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t a, SparseRank(c, 0));
  MR_ASSIGN_OR_RETURN(const int64_t b, SparseRank(c, 3));
  SetSparseOutput(c, 0, -1, std::max(a, b), false);
  return absl::OkStatus();
}
Status SparseAddGradShape(ShapeContext& c) {
  for (int i = 0; i < 2; ++i) {
    MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1 + i, 2));
    c.set_output(i, PartialShape({indices.dim(0)}));
  }
  return absl::OkStatus();
}

Status SparseAddGradient(GradientContext& c) {
  Node* const back = c.AddNode("SparseAddGrad", {c.grad(1), c.input(0), c.input(3), c.output(0)});
  if (back == nullptr) return c.status();
  c.set_input_grad(1, Endpoint{back, 0});
  c.set_input_grad(4, Endpoint{back, 1});
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseAdd)
    .Input("a_indices: int64")
    .Input("a_values: T")
    .Input("a_shape: int64")
    .Input("b_indices: int64")
    .Input("b_values: T")
    .Input("b_shape: int64")
    .Input("thresh: Treal")
    .Output("sum_indices: int64")
    .Output("sum_values: T")
    .Output("sum_shape: int64")
    .Attr("T: numbertype")
    .Attr("Treal: realnumbertype")
    .Shape(SparseAddShape)
    .Gradient(SparseAddGradient)
    .Summary("The sum of two sparse tensors, without entries below a threshold");
MILLRACE_OP(SparseAddGrad)
    .Input("backprop_val_grad: T")
    .Input("a_indices: int64")
    .Input("b_indices: int64")
    .Input("sum_indices: int64")
    .Output("a_val_grad: T")
    .Output("b_val_grad: T")
    .Attr("T: numbertype")
    .Shape(SparseAddGradShape)
    .NotDifferentiable()
    .Summary("The gradient of SparseAdd");
MILLRACE_OP(SparseSparseMaximum)
    .Input("a_indices: int64")
    .Input("a_values: T")
    .Input("a_shape: int64")
    .Input("b_indices: int64")
    .Input("b_values: T")
    .Input("b_shape: int64")
    .Output("output_indices: int64")
    .Output("output_values: T")
    .Attr("T: realnumbertype")
    .Shape(SparseExtremeShape)
    .NotDifferentiable()
    .Summary("Element-wise maximum of two sparse tensors; missing entries are 0");
MILLRACE_OP(SparseSparseMinimum)
    .Input("a_indices: int64")
    .Input("a_values: T")
    .Input("a_shape: int64")
    .Input("b_indices: int64")
    .Input("b_values: T")
    .Input("b_shape: int64")
    .Output("output_indices: int64")
    .Output("output_values: T")
    .Attr("T: numbertype")
    .Shape(SparseExtremeShape)
    .NotDifferentiable()
    .Summary("Element-wise minimum of two sparse tensors; missing entries are 0");

MILLRACE_KERNEL(SparseAdd, kCpu, SparseAddKernel);
MILLRACE_KERNEL(SparseAddGrad, kCpu, SparseAddGradKernel);
MILLRACE_KERNEL(SparseSparseMaximum, kCpu, SparseExtremeKernel<true>);
MILLRACE_KERNEL(SparseSparseMinimum, kCpu, SparseExtremeKernel<false>);

}  // namespace millrace::sparse
