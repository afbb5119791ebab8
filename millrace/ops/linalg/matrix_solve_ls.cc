// MatrixSolveLs: least squares.
#include <algorithm>

#include "millrace/ops/linalg/lapack.h"
#include "millrace/ops/linalg/matrix_batch.h"

namespace millrace::linalg {
namespace {

class MatrixSolveLsKernel : public Kernel {
 public:
  explicit MatrixSolveLsKernel(KernelInit& init) {
    init.Attr("fast", &fast_);
    NeedLinalgType(init);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &matrix = ctx.input(0), &rhs = ctx.input(1), &l2 = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const MatrixBatch a, MatrixBatch::Of(matrix));
    MR_ASSIGN_OR_RETURN(const MatrixBatch b, MatrixBatch::Of(rhs));
    if (a.lead != b.lead) {
      return InvalidArgument("All input tensors must have the same outer dimensions: ", matrix.shape().ToString(),
                             " vs. ", rhs.shape().ToString());
    }
    if (a.rows != b.rows) return InvalidArgument("Input matrix and rhs are incompatible.");
    if (l2.rank() != 0) return InvalidArgument("l2_regularizer must be scalar, got shape ", l2.shape().ToString());
    const double regularizer = l2.scalar<double>();
    if (!(regularizer >= 0)) return InvalidArgument("l2_regularizer must be >= 0.");
    MR_ASSIGN_OR_RETURN(const Shape shape, a.With(a.columns, b.columns));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    Status status;
    DispatchType(LinalgTypes{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (a.rows == 0 || a.columns == 0 || b.columns == 0) {
        std::fill_n(out->data<T>(), out->num_elements(), T(0));
        return;
      }
      for (int64_t i = 0; i < a.count && status.ok(); ++i) {
        std::vector<WideType<T>> x = WideAt<T>(rhs, i, b.rows, b.columns);
        status = Solve(static_cast<int>(a.rows), static_cast<int>(a.columns), static_cast<int>(b.columns),
                       WideAt<T>(matrix, i, a.rows, a.columns), regularizer, kTolerance<T>, &x);
        if (status.ok()) StoreAt<T>(x, i, out);
      }
    });
    return status;
  }

 private:
  // The relative tolerance below which a pivot is treated as 0.
  template <typename T>
  static constexpr double kTolerance =
      std::is_same_v<T, float> || std::is_same_v<T, std::complex<float>> ? 1e-6 : 1e-14;

  // For a of m x n, row-major like all matrices here: replaces b (m x k) by x (n x k).
  template <typename C>
  Status Solve(int m, int n, int k, const std::vector<C>& a, double l2, double tolerance, std::vector<C>* b) const {
    if (!fast_) {
      SolveByRotations(m, n, k, a, tolerance * std::max(m, n), b);
      return absl::OkStatus();
    }
    // To LAPACK, a row-major matrix is its transpose; so the Gram matrix comes out transposed too, which for a
    // Hermitian one is its conjugate.
    const bool tall = m >= n;
    const int order = std::min(m, n);
    std::vector<C> gram(static_cast<size_t>(order) * order);
    if (tall) {
      Gemm('N', 'C', n, n, m, a.data(), n, a.data(), n, gram.data(), n);
    } else {
      Gemm('C', 'N', m, m, n, a.data(), n, a.data(), n, gram.data(), m);
    }
    double greatest = 0;
    for (int i = 0; i < order; ++i) {
      C& diagonal = gram[static_cast<size_t>(i) * (order + 1)];
      diagonal += C(l2);
      greatest = std::max(greatest, std::abs(diagonal));
    }
    bool singular = Potrf('L', order, gram.data(), order) != 0;
    for (int i = 0; i < order && !singular; ++i) {
      singular = !(std::norm(gram[static_cast<size_t>(i) * (order + 1)]) > tolerance * greatest);
    }
    if (singular) {
      return InvalidArgument(
          "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide a larger "
          "l2_regularizer > 0.");
    }
    // Transposed, x^T = (b^T conj(a)) gram^-T for a tall a and (b^T gram^-T) conj(a) for a wide one, with the Gram
    // matrix's factor gram^T = l l^H.
    const auto divide = [&](std::vector<C>* x) {
      Trsm('R', 'L', 'C', k, order, gram.data(), order, x->data(), k);
      Trsm('R', 'L', 'N', k, order, gram.data(), order, x->data(), k);
    };
    std::vector<C> x(static_cast<size_t>(n) * k);
    if (!tall) divide(b);
    Gemm('N', 'C', k, n, m, b->data(), k, a.data(), n, x.data(), k);
    if (tall) divide(&x);
    *b = std::move(x);
    return absl::OkStatus();
  }

  // By a complete orthogonal decomposition, which handles any rank and condition.
  template <typename C>
  static void SolveByRotations(int m, int n, int k, const std::vector<C>& a, double rcond, std::vector<C>* b) {
    const int rows = std::max(m, n);
    std::vector<C> matrix(a.size()), x(static_cast<size_t>(rows) * k);
    Transpose(a.data(), m, n, matrix.data());
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < k; ++j) x[static_cast<size_t>(j) * rows + i] = (*b)[static_cast<size_t>(i) * k + j];
    }
    Gelsy(m, n, k, matrix.data(), m, x.data(), rows, rcond);
    b->resize(static_cast<size_t>(n) * k);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < k; ++j) (*b)[static_cast<size_t>(i) * k + j] = x[static_cast<size_t>(j) * rows + i];
    }
  }

  bool fast_ = true;
};

Status MatrixSolveLsShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRankAtLeast(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRankAtLeast(1, 2));
  MR_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  if (!a.known_rank() || !b.known_rank()) return absl::OkStatus();
  const int64_t m = a.dim(a.rank() - 2), n = b.dim(b.rank() - 2);
  if (m >= 0 && n >= 0 && m != n) return InvalidArgument("Dimensions must be equal, but are ", m, " and ", n);
  if (a.rank() != b.rank())
    return InvalidArgument("matrix and rhs must have as many dimensions, not ", a.rank(), " and ", b.rank());
  PartialShape out = a;
  out.set_dim(a.rank() - 2, a.dim(a.rank() - 1));
  out.set_dim(a.rank() - 1, b.dim(b.rank() - 1));
  c.set_output(0, std::move(out));
  return absl::OkStatus();
}

// Through the normal equations: for tall matrices x = c^-1 a^H b with c = a^H a + l2, for wide ones x = a^H c^-1 b with
// c = a a^H + l2.
Status MatrixSolveLsGradient(GradientContext& c) {
  const Endpoint a = c.input(0), b = c.input(1), x = c.output(0), g = c.grad();
  MR_RETURN_IF_ERROR(NeedMatrixShape(c));
  const PartialShape shape = a.shape();
  const bool tall = shape.dim(shape.rank() - 2) >= shape.dim(shape.rank() - 1);
  const Endpoint square = tall ? Product(c, a, a, true, false) : Product(c, a, a, false, true);
  const Endpoint l2 = c.Cast(c.input(2), a.dtype());
  const Endpoint ones = c.OnesLike(c.Op("MatrixDiagPart", {square}));
  const Endpoint gram = c.Add(square, c.Op("MatrixDiag", {c.Mul(l2, ones)}));
  if (tall) {
    const Endpoint z = c.Op("MatrixSolve", {gram, g});
    const Endpoint both = c.Add(Product(c, x, z, false, true), Product(c, z, x, false, true));
    c.set_input_grad(0, c.Sub(Product(c, b, z, false, true), Product(c, a, both)));
    c.set_input_grad(1, Product(c, a, z));
    return c.status();
  }
  const Endpoint gb = c.Op("MatrixSolve", {gram, Product(c, a, g)});
  const Endpoint y = c.Op("MatrixSolve", {gram, b});
  const Endpoint inner = c.Sub(g, Product(c, a, gb, true));
  c.set_input_grad(0, c.Sub(Product(c, y, inner, false, true), Product(c, gb, x, false, true)));
  c.set_input_grad(1, gb);
  return c.status();
}

}  // namespace

MILLRACE_OP(MatrixSolveLs)
    .Input("matrix: T")
    .Input("rhs: T")
    .Input("l2_regularizer: double")
    .Output("output: T")
    .Attr("T: {double, float, half, complex64, complex128}")
    .Attr("fast: bool = true")
    .Shape(MatrixSolveLsShape)
    .Gradient(MatrixSolveLsGradient)
    .Summary("Least-squares solutions x of matrix x = rhs");

MILLRACE_KERNEL(MatrixSolveLs, kCpu, MatrixSolveLsKernel);

}  // namespace millrace::linalg
