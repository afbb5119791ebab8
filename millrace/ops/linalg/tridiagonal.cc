// TridiagonalSolve and TridiagonalMatMul.
#include <cmath>

#include "millrace/ops/linalg/matrix_batch.h"

namespace millrace::linalg {
namespace {

// The rows of a tridiagonal matrix during elimination: row i has the values diagonal[i], above[i] and, after an
// exchange of rows, second[i] in columns i, i + 1 and i + 2.
template <typename C>
class TridiagonalElimination {
 public:
  // Entry i of each diagonal is in row i; the first of `below` and the last of `above` are not used.
  TridiagonalElimination(const C* above, const C* diagonal, const C* below, int64_t n)
      : n_(n), above_(above, above + n), diagonal_(diagonal, diagonal + n), below_(below, below + n), second_(n) {
    above_[n - 1] = C(0);
  }

  // Solves for the n rows of `width` values in `x`, in place. False if a pivot is zero.
  bool Solve(bool pivoting, int64_t width, C* x) {
    for (int64_t i = 0; i + 1 < n_; ++i) {
      if (pivoting && std::abs(below_[i + 1]) > std::abs(diagonal_[i])) Exchange(i, width, x);
      if (diagonal_[i] == C(0)) return false;
      const C factor = below_[i + 1] / diagonal_[i];
      diagonal_[i + 1] -= factor * above_[i];
      above_[i + 1] -= factor * second_[i];
      for (int64_t k = 0; k < width; ++k) x[(i + 1) * width + k] -= factor * x[i * width + k];
    }
    if (diagonal_[n_ - 1] == C(0)) return false;
    for (int64_t i = n_; i-- > 0;) {
      for (int64_t k = 0; k < width; ++k) {
        C& value = x[i * width + k];
        if (i + 1 < n_) value -= above_[i] * x[(i + 1) * width + k];
        if (i + 2 < n_) value -= second_[i] * x[(i + 2) * width + k];
        value /= diagonal_[i];
      }
    }
    return true;
  }

 private:
  // Rows i and i + 1 change places.
  void Exchange(int64_t i, int64_t width, C* x) {
    std::swap(diagonal_[i], below_[i + 1]);
    std::swap(above_[i], diagonal_[i + 1]);
    std::swap(second_[i], above_[i + 1]);
    std::swap_ranges(x + i * width, x + (i + 1) * width, x + (i + 1) * width);
  }

  const int64_t n_;
  std::vector<C> above_, diagonal_, below_, second_;
};

class TridiagonalSolveKernel : public Kernel {
 public:
  explicit TridiagonalSolveKernel(KernelInit& init) {
    bool perturb = false;
    init.Attr("partial_pivoting", &pivoting_);
    init.Attr("perturb_singular", &perturb);
    if (perturb) init.Fail(Unimplemented("perturb_singular is not supported on a CPU"));
    NeedLinalgType(init);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch diagonals, MatrixBatch::Of(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const MatrixBatch rhs, MatrixBatch::Of(ctx.input(1)));
    if (diagonals.rows != 3) return InvalidArgument("Expected 3 diagonals got ", diagonals.rows);
    if (diagonals.columns != rhs.rows) {
      return InvalidArgument(
          "The length of diagonals and the number of rows of the right-hand side must be the same, "
          "got ",
          diagonals.columns, " and ", rhs.rows);
    }
    if (diagonals.lead != rhs.lead) {
      return InvalidArgument("Batch shapes of diagonals and right-hand sides must be the same, got ",
                             diagonals.lead.ToString(), " and ", rhs.lead.ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, ctx.input(1).shape()));
    if (out->num_elements() == 0) return absl::OkStatus();
    DispatchType(LinalgTypes{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = WideType<T>;
      const int64_t n = rhs.rows;
      for (int64_t i = 0; i < rhs.count; ++i) {
        const std::vector<C> bands = WideAt<T>(ctx.input(0), i, 3, n);
        std::vector<C> x = WideAt<T>(ctx.input(1), i, n, rhs.columns);
        TridiagonalElimination<C> elimination(bands.data(), bands.data() + n, bands.data() + 2 * n, n);
        // A matrix that has no inverse gives no numbers, as in TensorFlow.
        if (!elimination.Solve(pivoting_, rhs.columns, x.data())) {
          std::fill(x.begin(), x.end(), C(std::numeric_limits<double>::quiet_NaN()));
        }
        StoreAt<T>(x, i, out);
      }
    });
    return absl::OkStatus();
  }

 private:
  bool pivoting_ = true;
};

class TridiagonalMatMulKernel : public Kernel {
 public:
  explicit TridiagonalMatMulKernel(KernelInit& init) { NeedLinalgType(init); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch rhs, MatrixBatch::Of(ctx.input(3)));
    for (int d = 0; d < 3; ++d) {
      MR_ASSIGN_OR_RETURN(const MatrixBatch diagonal, MatrixBatch::Of(ctx.input(d)));
      if (diagonal.rows != 1 || diagonal.columns != rhs.rows || diagonal.lead != rhs.lead) {
        return InvalidArgument("Input ", d, " has shape ", ctx.input(d).shape().ToString(),
                               ", which does not match the right-hand side's ", ctx.input(3).shape().ToString());
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, ctx.input(3).shape()));
    DispatchType(LinalgTypes{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t n = rhs.rows, width = rhs.columns;
      for (int64_t i = 0; i < rhs.count; ++i) {
        const T *above = ctx.input(0).data<T>() + i * n, *diagonal = ctx.input(1).data<T>() + i * n,
                *below = ctx.input(2).data<T>() + i * n, *x = ctx.input(3).data<T>() + i * n * width;
        T* to = out->data<T>() + i * n * width;
        for (int64_t row = 0; row < n; ++row) {
          for (int64_t k = 0; k < width; ++k) {
            T sum = diagonal[row] * x[row * width + k];
            if (row > 0) sum += below[row] * x[(row - 1) * width + k];
            if (row + 1 < n) sum += above[row] * x[(row + 1) * width + k];
            *to++ = sum;
          }
        }
      }
    });
    return absl::OkStatus();
  }
};

Status TridiagonalShape(ShapeContext& c) {
  const int rhs = c.num_inputs() - 1;
  for (int i = 0; i < rhs; ++i) MR_RETURN_IF_ERROR(c.WithRankAtLeast(i, 2).status());
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(rhs, 2));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(TridiagonalSolve)
    .Input("diagonals: T")
    .Input("rhs: T")
    .Output("output: T")
    .Attr("partial_pivoting: bool = true")
    .Attr("perturb_singular: bool = false")
    .Attr("T: {double, float, complex64, complex128}")
    .Shape(TridiagonalShape)
    .NotDifferentiable()
    .Summary("The solutions of tridiagonal systems of equations");
MILLRACE_OP(TridiagonalMatMul)
    .Input("superdiag: T")
    .Input("maindiag: T")
    .Input("subdiag: T")
    .Input("rhs: T")
    .Output("output: T")
    .Attr("T: {double, float, complex64, complex128}")
    .Shape(TridiagonalShape)
    .NotDifferentiable()
    .Summary("Products of tridiagonal matrices and matrices");
MILLRACE_KERNEL(TridiagonalSolve, kCpu, TridiagonalSolveKernel);
MILLRACE_KERNEL(TridiagonalMatMul, kCpu, TridiagonalMatMulKernel);

}  // namespace millrace::linalg
