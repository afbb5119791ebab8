// Qr, LogMatrixDeterminant.
#include <algorithm>

#include "millrace/ops/linalg/lapack.h"
#include "millrace/ops/linalg/matrix_batch.h"
#include "millrace/ops/linalg/matrix_shapes.h"

namespace millrace::linalg {
namespace {

using QrTypes = JoinTypes<LinalgTypes, Types<half>>::type;

class QrKernel : public Kernel {
 public:
  explicit QrKernel(KernelInit& init) {
    init.Attr("full_matrices", &full_);
    if (!DispatchType(QrTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch a, MatrixBatch::Of(ctx.input(0)));
    const int64_t inner = full_ ? a.rows : std::min(a.rows, a.columns);
    MR_ASSIGN_OR_RETURN(const Shape q_shape, a.With(a.rows, inner));
    MR_ASSIGN_OR_RETURN(const Shape r_shape, a.With(inner, a.columns));
    MR_ASSIGN_OR_RETURN(Tensor * q, ctx.AllocateOutput(0, q_shape));
    MR_ASSIGN_OR_RETURN(Tensor * r, ctx.AllocateOutput(1, r_shape));
    if (ctx.input(0).num_elements() == 0) {
      DispatchType(QrTypes{}, q->dtype(), [&](auto tag) { FillUnit<typename decltype(tag)::type>(a, inner, q); });
      return absl::OkStatus();
    }
    DispatchType(QrTypes{}, q->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < a.count; ++i) {
        std::vector<WideType<T>> upper;
        StoreAt<T>(Decompose(static_cast<int>(a.rows), static_cast<int>(a.columns), static_cast<int>(inner),
                             WideAt<T>(ctx.input(0), i, a.rows, a.columns), &upper),
                   i, q);
        StoreAt<T>(upper, i, r);
      }
    });
    return absl::OkStatus();
  }

 private:
  // q (m x inner) and r (inner x n) of a (m x n), all row-major.
  template <typename C>
  static std::vector<C> Decompose(int m, int n, int inner, const std::vector<C>& a, std::vector<C>* r) {
    const int reflectors = std::min(m, n);
    std::vector<C> columns(static_cast<size_t>(m) * std::max(n, inner)), tau(reflectors);
    Transpose(a.data(), m, n, columns.data());
    Geqrf(m, n, columns.data(), m, tau.data());
    r->assign(static_cast<size_t>(inner) * n, C(0));
    for (int i = 0; i < inner; ++i) {
      for (int j = i; j < n; ++j) (*r)[static_cast<size_t>(i) * n + j] = columns[static_cast<size_t>(j) * m + i];
    }
    Orgqr(m, inner, reflectors, columns.data(), m, tau.data());
    std::vector<C> q(static_cast<size_t>(m) * inner);
    Transpose(columns.data(), inner, m, q.data());
    return q;
  }

  // The q of matrices without columns.
  template <typename T>
  static void FillUnit(const MatrixBatch& a, int64_t inner, Tensor* q) {
    std::fill_n(q->data<T>(), q->num_elements(), T(0));
    for (int64_t i = 0; i < a.count; ++i) {
      for (int64_t j = 0; j < std::min(a.rows, inner); ++j) q->data<T>()[(i * a.rows + j) * inner + j] = T(1);
    }
  }

  bool full_ = false;
};

Status QrShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRankAtLeast(0, 2));
  if (!a.known_rank()) return absl::OkStatus();
  const int rank = a.rank();
  const int64_t m = a.dim(rank - 2), n = a.dim(rank - 1);
  MR_ASSIGN_OR_RETURN(const bool full, c.Attr<bool>("full_matrices"));
  const int64_t inner = full ? m : m < 0 || n < 0 ? -1 : std::min(m, n);
  PartialShape q = a, r = a;
  q.set_dim(rank - 1, inner);
  r.set_dim(rank - 2, inner);
  c.set_output(0, std::move(q));
  c.set_output(1, std::move(r));
  return absl::OkStatus();
}

// x r^-H, as the adjoint of r^-1 x^H.
Endpoint SolveRight(GradientContext& c, Endpoint x, Endpoint r) {
  return Adjoint(c, c.Op("MatrixTriangularSolve", {r, Adjoint(c, x)}, {{"lower", false}, {"adjoint", false}}));
}

// For at least as many rows as columns: q (gr + tril r^-H) + (gq - q q^H gq) r^-H, where tril is the lower part of what
// is skew in q^H gq + r gr^H.
Endpoint TallQrGradient(GradientContext& c, Endpoint q, Endpoint r, Endpoint gq, Endpoint gr) {
  const Endpoint qdq = Product(c, q, gq, true), rdr = Product(c, r, gr, false, true);
  const Endpoint skew = c.Add(c.Sub(qdq, Product(c, gq, q, true)), c.Sub(rdr, Product(c, gr, r, false, true)));
  const Endpoint first = Product(c, q, c.Add(gr, SolveRight(c, BandPart(c, skew, -1, 0), r)));
  const Endpoint result = c.Add(first, SolveRight(c, c.Sub(gq, Product(c, q, qdq)), r));
  if (!IsComplex(q.dtype())) return result;
  // The diagonal of r is real, so its imaginary part is subtracted.
  const Endpoint m = c.Op("MatrixDiagPart", {c.Sub(rdr, Product(c, gq, q, true))});
  const DType real = q.dtype() == DType::kComplex64 ? DType::kFloat : DType::kDouble;
  const Endpoint real_part = c.Cast(c.Op("Real", {m}, {{"Tout", real}}), q.dtype());
  const Endpoint correction = c.Op("MatrixDiag", {c.Conj(c.Sub(m, real_part))});
  return c.Add(result, SolveRight(c, Product(c, q, correction), r));
}

// Columns [begin, end) of matrices; an end of 0 means up to the last.
Endpoint Columns(GradientContext& c, Endpoint x, int begin, int end) {
  return c.Op("StridedSlice", {x, c.Ints({0, begin}), c.Ints({0, end}), c.Ints({1, 1})},
              {{"ellipsis_mask", 1}, {"end_mask", end == 0 ? 2 : 0}});
}

Status QrGradient(GradientContext& c) {
  const Endpoint a = c.input(0), q = c.output(0), r = c.output(1), gq = c.grad(0), gr = c.grad(1);
  MR_RETURN_IF_ERROR(NeedMatrixShape(c));
  const PartialShape shape = a.shape();
  const int64_t rows = shape.dim(shape.rank() - 2), columns = shape.dim(shape.rank() - 1);
  if (rows > columns && c.AttrOr<bool>("full_matrices", false)) {
    return Unimplemented("Qr has no gradient for more rows than columns with full_matrices");
  }
  if (rows >= columns) {
    c.set_input_grad(0, TallQrGradient(c, q, r, gq, gr));
    return c.status();
  }
  // If there are more columns than rows, those beyond the square part depend on q only.
  const int n = static_cast<int>(rows);
  const Endpoint gv = Columns(c, gr, n, 0);
  const Endpoint gq_all = c.Add(gq, Product(c, Columns(c, a, n, 0), gv, false, true));
  const Endpoint left = TallQrGradient(c, q, Columns(c, r, 0, n), gq_all, Columns(c, gr, 0, n));
  c.set_input_grad(0, c.Op("ConcatV2", {left, Product(c, q, gv), c.Scalar<int32_t>(-1)}));
  return c.status();
}

class LogMatrixDeterminantKernel : public Kernel {
 public:
  explicit LogMatrixDeterminantKernel(KernelInit& init) { NeedLinalgType(init); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch a, MatrixBatch::Of(ctx.input(0)));
    if (a.rows != a.columns)
      return InvalidArgument("Input matrix must be square, but got: ", a.rows, " != ", a.columns);
    MR_ASSIGN_OR_RETURN(Tensor * sign, ctx.AllocateOutput(0, a.lead));
    MR_ASSIGN_OR_RETURN(Tensor * log, ctx.AllocateOutput(1, a.lead));
    DispatchType(LinalgTypes{}, sign->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < a.count; ++i) {
        using C = WideType<T>;
        C s = C(1);
        double l = 0;
        if (a.rows > 0) {
          const int n = static_cast<int>(a.rows);
          std::vector<C> lu = WideAt<T>(ctx.input(0), i, n, n);
          std::vector<int> pivots(n);
          Getrf(n, n, lu.data(), n, pivots.data());
          for (int j = 0; j < n; ++j) {
            if (pivots[j] != j + 1) s = -s;
          }
          for (int j = 0; j < n; ++j) {
            const C d = lu[static_cast<size_t>(j) * (n + 1)];
            const double size = std::abs(d);
            s *= size > 0 ? d / size : C(0);
            l += std::log(size);
          }
        }
        sign->data<T>()[i] = static_cast<T>(s);
        log->data<T>()[i] = static_cast<T>(l);
      }
    });
    return absl::OkStatus();
  }
};

Status LogMatrixDeterminantShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, SquareMatrices(c, 0));
  if (!a.known_rank()) return absl::OkStatus();
  for (int i : {0, 1}) c.set_output(i, PartialShape(a.dims().subspan(0, a.rank() - 2)));
  return absl::OkStatus();
}

Status LogMatrixDeterminantGradient(GradientContext& c) {
  const Endpoint inverse = c.Op("MatrixInverse", {c.input(0)}, {{"adjoint", true}});
  const Endpoint g =
      c.Op("ExpandDims", {c.Op("ExpandDims", {c.grad(1), c.Scalar<int32_t>(-1)}), c.Scalar<int32_t>(-1)});
  c.set_input_grad(0, c.Mul(g, inverse));
  return c.status();
}

}  // namespace

MILLRACE_OP(Qr)
    .Input("input: T")
    .Output("q: T")
    .Output("r: T")
    .Attr("full_matrices: bool = false")
    .Attr("T: {double, float, half, complex64, complex128}")
    .Shape(QrShape)
    .Gradient(QrGradient)
    .Summary("QR decompositions of matrices");
MILLRACE_OP(LogMatrixDeterminant)
    .Input("input: T")
    .Output("sign: T")
    .Output("log_abs_determinant: T")
    .Attr("T: {half, float, double, complex64, complex128}")
    .Shape(LogMatrixDeterminantShape)
    .Gradient(LogMatrixDeterminantGradient)
    .Summary("The signs and the logarithms of the absolute values of determinants");

MILLRACE_KERNEL(Qr, kCpu, QrKernel);
MILLRACE_KERNEL(LogMatrixDeterminant, kCpu, LogMatrixDeterminantKernel);

}  // namespace millrace::linalg
