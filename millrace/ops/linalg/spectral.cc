// Svd, SelfAdjointEigV2, Eig: singular values, eigenvalues and their vectors. Computed in double precision by LAPACK.
#include <algorithm>

#include "millrace/ops/linalg/lapack.h"
#include "millrace/ops/linalg/matrix_batch.h"
#include "millrace/ops/linalg/matrix_shapes.h"

extern "C" {
using Complex128 = std::complex<double>;
void dgesdd_(const char*, const int*, const int*, double*, const int*, double*, double*, const int*, double*,
             const int*, double*, const int*, int*, int*);
void zgesdd_(const char*, const int*, const int*, Complex128*, const int*, double*, Complex128*, const int*,
             Complex128*, const int*, Complex128*, const int*, double*, int*, int*);
void dsyevd_(const char*, const char*, const int*, double*, const int*, double*, double*, const int*, int*, const int*,
             int*);
void zheevd_(const char*, const char*, const int*, Complex128*, const int*, double*, Complex128*, const int*, double*,
             const int*, int*, const int*, int*);
void zgeev_(const char*, const char*, const int*, Complex128*, const int*, Complex128*, Complex128*, const int*,
            Complex128*, const int*, Complex128*, const int*, double*, int*);
}

namespace millrace::linalg {
namespace {

using SpectralTypes = JoinTypes<LinalgTypes, Types<half>>::type;

// a (m x n, column-major, overwritten) = u diag(s) vt. `job`: 'N' no vectors, 'S' the first min(m, n), 'A' all.
int Gesdd(char job, int m, int n, double* a, double* s, double* u, int ldu, double* vt, int ldvt) {
  std::vector<int> ints(8 * static_cast<size_t>(std::min(m, n)));
  int info = 0, size = -1;
  double asked = 0;
  dgesdd_(&job, &m, &n, a, &m, s, u, &ldu, vt, &ldvt, &asked, &size, ints.data(), &info);
  std::vector<double> work(size = std::max(1, static_cast<int>(asked)));
  dgesdd_(&job, &m, &n, a, &m, s, u, &ldu, vt, &ldvt, work.data(), &size, ints.data(), &info);
  return info;
}
int Gesdd(char job, int m, int n, Complex128* a, double* s, Complex128* u, int ldu, Complex128* vt, int ldvt) {
  const size_t small = std::min(m, n), large = std::max(m, n);
  std::vector<int> ints(8 * small);
  std::vector<double> reals(std::max(5 * small * small + 7 * small, 2 * large * small + 2 * small * small + small));
  int info = 0, size = -1;
  Complex128 asked = 0;
  zgesdd_(&job, &m, &n, a, &m, s, u, &ldu, vt, &ldvt, &asked, &size, reals.data(), ints.data(), &info);
  std::vector<Complex128> work(size = std::max(1, static_cast<int>(asked.real())));
  zgesdd_(&job, &m, &n, a, &m, s, u, &ldu, vt, &ldvt, work.data(), &size, reals.data(), ints.data(), &info);
  return info;
}

// The eigenvalues, rising, and in place of a (n x n, column-major, lower triangle) its eigenvectors.
int Eigh(char job, int n, double* a, double* values) {
  const char lower = 'L';
  int info = 0, size = -1, int_size = -1, asked_ints = 0;
  double asked = 0;
  dsyevd_(&job, &lower, &n, a, &n, values, &asked, &size, &asked_ints, &int_size, &info);
  std::vector<double> work(size = std::max(1, static_cast<int>(asked)));
  std::vector<int> ints(int_size = std::max(1, asked_ints));
  dsyevd_(&job, &lower, &n, a, &n, values, work.data(), &size, ints.data(), &int_size, &info);
  return info;
}
int Eigh(char job, int n, Complex128* a, double* values) {
  const char lower = 'L';
  int info = 0, size = -1, real_size = -1, int_size = -1, asked_ints = 0;
  double asked_reals = 0;
  Complex128 asked = 0;
  zheevd_(&job, &lower, &n, a, &n, values, &asked, &size, &asked_reals, &real_size, &asked_ints, &int_size, &info);
  std::vector<Complex128> work(size = std::max(1, static_cast<int>(asked.real())));
  std::vector<double> reals(real_size = std::max(1, static_cast<int>(asked_reals)));
  std::vector<int> ints(int_size = std::max(1, asked_ints));
  zheevd_(&job, &lower, &n, a, &n, values, work.data(), &size, reals.data(), &real_size, ints.data(), &int_size, &info);
  return info;
}

template <typename C>
C Conjugate(const C& x) {
  if constexpr (std::is_same_v<C, double>) {
    return x;
  } else {
    return std::conj(x);
  }
}

// The shape of one vector of `n` for each matrix of the batch.
StatusOr<Shape> VectorsOf(const MatrixBatch& a, int64_t n) {
  Shape shape = a.lead;
  shape.AddDim(n);
  return Shape::Make(shape.dims());
}

class SvdKernel : public Kernel {
 public:
  explicit SvdKernel(KernelInit& init) {
    init.Attr("compute_uv", &with_vectors_);
    init.Attr("full_matrices", &full_);
    if (!DispatchType(SpectralTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch a, MatrixBatch::Of(ctx.input(0)));
    const int64_t p = std::min(a.rows, a.columns), mu = full_ ? a.rows : p, nv = full_ ? a.columns : p;
    MR_ASSIGN_OR_RETURN(const Shape s_shape, VectorsOf(a, p));
    MR_ASSIGN_OR_RETURN(const Shape u_shape, with_vectors_ ? a.With(a.rows, mu) : VectorsOf(a, 0));
    MR_ASSIGN_OR_RETURN(const Shape v_shape, with_vectors_ ? a.With(a.columns, nv) : VectorsOf(a, 0));
    MR_ASSIGN_OR_RETURN(Tensor * s, ctx.AllocateOutput(0, s_shape));
    MR_ASSIGN_OR_RETURN(Tensor * u, ctx.AllocateOutput(1, u_shape));
    MR_ASSIGN_OR_RETURN(Tensor * v, ctx.AllocateOutput(2, v_shape));
    Status status;
    DispatchType(SpectralTypes{}, s->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < a.count && status.ok(); ++i) status = One<T>(ctx.input(0), a, i, s, u, v);
    });
    return status;
  }

 private:
  template <typename T>
  Status One(const Tensor& in, const MatrixBatch& a, int64_t i, Tensor* s, Tensor* u, Tensor* v) const {
    using C = WideType<T>;
    const int m = static_cast<int>(a.rows), n = static_cast<int>(a.columns), p = std::min(m, n);
    const int mu = full_ ? m : p, nv = full_ ? n : p;
    if (p == 0) {
      if (with_vectors_) {
        StoreAt<T>(UnitMatrix<C>(m, mu), i, u);
        StoreAt<T>(UnitMatrix<C>(n, nv), i, v);
      }
      return absl::OkStatus();
    }
    std::vector<C> columns(static_cast<size_t>(m) * n), left(with_vectors_ ? static_cast<size_t>(m) * mu : 1),
        right(with_vectors_ ? static_cast<size_t>(nv) * n : 1);
    std::vector<double> values(p);
    Transpose(WideAt<T>(in, i, m, n).data(), m, n, columns.data());
    const bool finite =
        std::all_of(columns.begin(), columns.end(), [](const C& x) { return std::isfinite(std::abs(x)); });
    const char job = !with_vectors_ ? 'N' : full_ ? 'A' : 'S';
    if (!finite) {
      std::fill(values.begin(), values.end(), std::numeric_limits<double>::quiet_NaN());
      std::fill(left.begin(), left.end(), C(std::numeric_limits<double>::quiet_NaN()));
      std::fill(right.begin(), right.end(), C(std::numeric_limits<double>::quiet_NaN()));
    } else if (Gesdd(job, m, n, columns.data(), values.data(), left.data(), with_vectors_ ? m : 1, right.data(),
                     with_vectors_ ? nv : 1) != 0) {
      return InvalidArgument("the singular value decomposition did not converge");
    }
    StoreAt<T>(std::vector<C>(values.begin(), values.end()), i, s);
    if (!with_vectors_) return absl::OkStatus();
    std::vector<C> rows(left.size()), adjoint(right.size());
    Transpose(left.data(), mu, m, rows.data());
    // LAPACK gives v^H, column-major: that is conj(v), row-major.
    for (size_t k = 0; k < right.size(); ++k) adjoint[k] = Conjugate(right[k]);
    StoreAt<T>(rows, i, u);
    StoreAt<T>(adjoint, i, v);
    return absl::OkStatus();
  }
  template <typename C>
  static std::vector<C> UnitMatrix(int rows, int columns) {
    std::vector<C> unit(static_cast<size_t>(rows) * columns, C(0));
    for (int k = 0; k < std::min(rows, columns); ++k) unit[static_cast<size_t>(k) * columns + k] = C(1);
    return unit;
  }

  bool with_vectors_ = true, full_ = false;
};

class SelfAdjointEigKernel : public Kernel {
 public:
  explicit SelfAdjointEigKernel(KernelInit& init) {
    init.Attr("compute_v", &with_vectors_);
    if (!DispatchType(SpectralTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch a, MatrixBatch::Of(ctx.input(0)));
    if (a.rows != a.columns) {
      return InvalidArgument("Input matrix must be square, but got: ", a.rows, " != ", a.columns);
    }
    MR_ASSIGN_OR_RETURN(const Shape e_shape, VectorsOf(a, a.rows));
    MR_ASSIGN_OR_RETURN(const Shape v_shape, with_vectors_ ? a.With(a.rows, a.rows) : VectorsOf(a, 0));
    MR_ASSIGN_OR_RETURN(Tensor * e, ctx.AllocateOutput(0, e_shape));
    MR_ASSIGN_OR_RETURN(Tensor * v, ctx.AllocateOutput(1, v_shape));
    Status status;
    DispatchType(SpectralTypes{}, e->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < a.count && a.rows > 0 && status.ok(); ++i) status = One<T>(ctx.input(0), a, i, e, v);
    });
    return status;
  }

 private:
  template <typename T>
  Status One(const Tensor& in, const MatrixBatch& a, int64_t i, Tensor* e, Tensor* v) const {
    using C = WideType<T>;
    const int n = static_cast<int>(a.rows);
    std::vector<C> columns(static_cast<size_t>(n) * n), rows(columns.size());
    std::vector<double> values(n);
    Transpose(WideAt<T>(in, i, n, n).data(), n, n, columns.data());
    if (Eigh(with_vectors_ ? 'V' : 'N', n, columns.data(), values.data()) != 0) {
      return InvalidArgument("Self-adjoint eigen decomposition was not successful. The input might not be valid.");
    }
    StoreAt<T>(std::vector<C>(values.begin(), values.end()), i, e);
    if (!with_vectors_) return absl::OkStatus();
    Transpose(columns.data(), n, n, rows.data());
    StoreAt<T>(rows, i, v);
    return absl::OkStatus();
  }

  bool with_vectors_ = true;
};

class EigKernel : public Kernel {
 public:
  explicit EigKernel(KernelInit& init) {
    init.Attr("compute_v", &with_vectors_);
    NeedLinalgType(init);
  }
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch a, MatrixBatch::Of(ctx.input(0)));
    if (a.rows != a.columns) {
      return InvalidArgument("Input matrix must be square, but got: ", a.rows, " != ", a.columns);
    }
    MR_ASSIGN_OR_RETURN(const Shape e_shape, VectorsOf(a, a.rows));
    MR_ASSIGN_OR_RETURN(const Shape v_shape, with_vectors_ ? a.With(a.rows, a.rows) : VectorsOf(a, 0));
    MR_ASSIGN_OR_RETURN(Tensor * e, ctx.AllocateOutput(0, e_shape));
    MR_ASSIGN_OR_RETURN(Tensor * v, ctx.AllocateOutput(1, v_shape));
    const int n = static_cast<int>(a.rows);
    for (int64_t i = 0; i < a.count && n > 0; ++i) {
      std::vector<Complex128> columns(static_cast<size_t>(n) * n), values(n), vectors(columns.size()),
          rows(columns.size());
      DispatchType(LinalgTypes{}, ctx.input(0).dtype(), [&](auto tag) {
        const auto wide = WideAt<typename decltype(tag)::type>(ctx.input(0), i, n, n);
        std::copy(wide.begin(), wide.end(), rows.begin());
      });
      Transpose(rows.data(), n, n, columns.data());
      const bool finite =
          std::all_of(rows.begin(), rows.end(), [](Complex128 x) { return std::isfinite(std::abs(x)); });
      if (!finite || Geev(n, columns.data(), values.data(), vectors.data()) != 0) {
        return InvalidArgument("Eigen decomposition was not successful. The input might not be valid.");
      }
      Transpose(vectors.data(), n, n, rows.data());
      DispatchType(ComplexTypes{}, e->dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        StoreAt<T>(values, i, e);
        if (with_vectors_) StoreAt<T>(rows, i, v);
      });
    }
    return absl::OkStatus();
  }

 private:
  int Geev(int n, Complex128* a, Complex128* values, Complex128* vectors) const {
    const char none = 'N', right = with_vectors_ ? 'V' : 'N';
    const int one = 1;
    std::vector<double> reals(2 * static_cast<size_t>(n));
    Complex128 asked = 0;
    int info = 0, size = -1;
    zgeev_(&none, &right, &n, a, &n, values, nullptr, &one, vectors, &n, &asked, &size, reals.data(), &info);
    std::vector<Complex128> work(size = std::max(1, static_cast<int>(asked.real())));
    zgeev_(&none, &right, &n, a, &n, values, nullptr, &one, vectors, &n, work.data(), &size, reals.data(), &info);
    return info;
  }

  bool with_vectors_ = true;
};

// The batch's dimensions followed by `dims`.
PartialShape AfterBatch(const PartialShape& a, std::initializer_list<int64_t> dims) {
  PartialShape shape = PartialShape::Scalar();
  for (int i = 0; i + 2 < a.rank(); ++i) shape.AddDim(a.dim(i));
  for (const int64_t d : dims) shape.AddDim(d);
  return shape;
}

Status SvdShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRankAtLeast(0, 2));
  if (!a.known_rank()) return UnknownShape(c);
  const int64_t m = a.dim(a.rank() - 2), n = a.dim(a.rank() - 1), p = m < 0 || n < 0 ? -1 : std::min(m, n);
  MR_ASSIGN_OR_RETURN(const bool with_vectors, c.Attr<bool>("compute_uv"));
  MR_ASSIGN_OR_RETURN(const bool full, c.Attr<bool>("full_matrices"));
  c.set_output(0, AfterBatch(a, {p}));
  c.set_output(1, with_vectors ? AfterBatch(a, {m, full ? m : p}) : AfterBatch(a, {0}));
  c.set_output(2, with_vectors ? AfterBatch(a, {n, full ? n : p}) : AfterBatch(a, {0}));
  return absl::OkStatus();
}

Status EigShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, SquareMatrices(c, 0));
  if (!a.known_rank()) return UnknownShape(c);
  const int64_t n = a.dim(a.rank() - 1);
  MR_ASSIGN_OR_RETURN(const bool with_vectors, c.Attr<bool>("compute_v"));
  c.set_output(0, AfterBatch(a, {n}));
  c.set_output(1, with_vectors ? AfterBatch(a, {n, n}) : AfterBatch(a, {0}));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(Svd)
    .Input("input: T")
    .Output("s: T")
    .Output("u: T")
    .Output("v: T")
    .Attr("compute_uv: bool = true")
    .Attr("full_matrices: bool = false")
    .Attr("T: {double, float, half, complex64, complex128}")
    .Shape(SvdShape)
    .Summary("Singular values of matrices, and their vectors.");
MILLRACE_OP(SelfAdjointEigV2)
    .Input("input: T")
    .Output("e: T")
    .Output("v: T")
    .Attr("compute_v: bool = true")
    .Attr("T: {double, float, half, complex64, complex128}")
    .Shape(EigShape)
    .Summary("Eigenvalues of self-adjoint matrices, and their vectors.");
MILLRACE_OP(Eig)
    .Input("input: T")
    .Output("e: Tout")
    .Output("v: Tout")
    .Attr("compute_v: bool = true")
    .Attr("T: {float, double, complex64, complex128}")
    .Attr("Tout: {complex64, complex128}")
    .Shape(EigShape)
    .Summary("Eigenvalues of square matrices, and their vectors.");
MILLRACE_KERNEL(Svd, kCpu, SvdKernel);
MILLRACE_KERNEL(SelfAdjointEigV2, kCpu, SelfAdjointEigKernel);
MILLRACE_KERNEL(Eig, kCpu, EigKernel);

}  // namespace millrace::linalg
