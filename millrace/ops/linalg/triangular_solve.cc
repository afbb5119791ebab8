// MatrixTriangularSolve, CholeskyGrad.
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <Eigen/Core>

#include "millrace/ops/linalg/lapack.h"
#include "millrace/ops/linalg/matrix_batch.h"
#include "millrace/ops/linalg/matrix_shapes.h"

namespace millrace::linalg {
namespace {

// While an instance exists, this thread flushes denormal results and operands to zero, as all of TensorFlow's threads
// do. Denormals are about a hundred times slower.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kFlushOperands); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
  const unsigned before_;
#endif
};

// The broadcast batch dimensions of both operands, and the operands of each result.
struct BroadcastBatches {
  Shape shape;
  std::vector<int64_t> a, b;
};

StatusOr<BroadcastBatches> Broadcast(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  BroadcastBatches batches;
  const auto size = [rank](const Shape& s, int d) {
    const int at = d - (rank - s.rank());
    return at < 0 ? int64_t{1} : s.dim(at);
  };
  Shape::Dims dims;
  for (int d = 0; d < rank; ++d) {
    const int64_t x = size(a, d), y = size(b, d);
    if (x != y && x != 1 && y != 1) {
      return InvalidArgument("Incompatible shapes: ", a.ToString(), " vs. ", b.ToString());
    }
    dims.push_back(x == 1 ? y : x);
  }
  MR_ASSIGN_OR_RETURN(batches.shape, Shape::Make(dims));
  const int64_t count = batches.shape.num_elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at[2] = {0, 0}, stride[2] = {1, 1};
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t index = rest % dims[d];
      rest /= dims[d];
      const int64_t sizes[2] = {size(a, d), size(b, d)};
      for (int k = 0; k < 2; ++k) {
        if (sizes[k] != 1) at[k] += index * stride[k];
        stride[k] *= sizes[k];
      }
    }
    batches.a.push_back(at[0]);
    batches.b.push_back(at[1]);
  }
  return batches;
}

class MatrixTriangularSolveKernel : public Kernel {
 public:
  explicit MatrixTriangularSolveKernel(KernelInit& init) {
    init.Attr("lower", &lower_);
    init.Attr("adjoint", &adjoint_);
    NeedLinalgType(init);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &matrix = ctx.input(0), &rhs = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const MatrixBatch a, MatrixBatch::Of(matrix));
    MR_ASSIGN_OR_RETURN(const MatrixBatch b, MatrixBatch::Of(rhs));
    if (a.rows != a.columns) {
      return InvalidArgument("In[0] must be square matrices, but have ", a.rows, " rows and ", a.columns, " columns");
    }
    if (a.rows != b.rows) {
      return InvalidArgument("In[0] mismatch In[1] shape: ", a.rows, " vs. ", b.rows, ": ", matrix.shape().ToString(),
                             " ", rhs.shape().ToString(), " ", lower_, " ", adjoint_);
    }
    MR_ASSIGN_OR_RETURN(const BroadcastBatches batches, Broadcast(a.lead, b.lead));
    Shape shape = batches.shape;
    shape.AddDim(b.rows);
    shape.AddDim(b.columns);
    MR_ASSIGN_OR_RETURN(shape, Shape::Make(shape.dims()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (out->num_elements() == 0) return absl::OkStatus();
    DispatchType(LinalgTypes{}, matrix.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_floating_point_v<T>) {
        if (a.rows <= kSmall) return SolveSmall<T>(matrix, rhs, batches, b.columns, out);
      }
      // One pair of matrices serves the whole batch.
      std::vector<WideType<T>> m(a.rows * a.rows), x(b.rows * b.columns);
      for (size_t i = 0; i < batches.a.size(); ++i) {
        WidenAt<T>(matrix, batches.a[i], &m);
        WidenAt<T>(rhs, batches.b[i], &x);
        Solve(m, static_cast<int>(a.rows), static_cast<int>(b.columns), &x);
        StoreAt<T>(x, static_cast<int64_t>(i), out);
      }
    });
    return absl::OkStatus();
  }

 private:
  // Zeros on the diagonal give infinities, as in TensorFlow. Transposed, as BLAS sees row-major matrices, op(m) x = b
  // is x^T op(m)^T = b^T.
  template <typename C>
  void Solve(const std::vector<C>& m, int n, int columns, std::vector<C>* x) const {
    Trsm('R', lower_ ? 'U' : 'L', adjoint_ ? 'C' : 'N', columns, n, m.data(), n, x->data(), columns);
  }

  // Up to this many rows, a blocked algorithm takes longer to set up than to run.
  static constexpr int64_t kSmall = 32;

  static constexpr int kBlock = 32;

  // Subtracts the contributions of the `done` solved rows from `here` and divides. Rows and factors are `stride` apart,
  // in the order in which they were solved, and do not overlap. A whole block stays in registers; kWidth may also be
  // Eigen::Dynamic.
  template <int kWidth, typename T>
  static void Substitute(const T* factors, int64_t to_next, T diagonal, int64_t done, const T* solved, int64_t stride,
                         int64_t width, T* here) {
    using Row = Eigen::Array<T, kWidth, 1, Eigen::ColMajor, kWidth == Eigen::Dynamic ? kBlock : kWidth>;
    Eigen::Map<Row> result(here, width);
    Row sums = result;
    for (int64_t k = 0; k < done; ++k) sums -= factors[k * to_next] * Eigen::Map<const Row>(solved + k * stride, width);
    result = sums / diagonal;
  }

  // By substitution.
  template <typename T>
  void SolveSmall(const Tensor& matrix, const Tensor& rhs, const BroadcastBatches& batches, int64_t columns,
                  Tensor* out) const {
    const FlushDenormals flush;
    const int64_t n = matrix.shape().dim(matrix.shape().rank() - 1);
    const bool forwards = lower_ != adjoint_;
    const int64_t first = forwards ? 0 : n - 1, step = forwards ? 1 : -1;
    const int64_t to_row = adjoint_ ? 1 : n, to_column = adjoint_ ? n : 1;
    for (size_t i = 0; i < batches.a.size(); ++i) {
      const T* const m = matrix.flat<T>().data() + batches.a[i] * n * n;
      const T* const b = rhs.flat<T>().data() + batches.b[i] * n * columns;
      T* const x = out->flat<T>().data() + static_cast<int64_t>(i) * n * columns;
      std::copy(b, b + n * columns, x);
      for (int64_t done = 0; done < n; ++done) {
        const int64_t row = first + done * step;
        const T* const factors = m + row * to_row + first * to_column;
        const T diagonal = m[row * (to_row + to_column)];
        for (int64_t at = 0; at < columns; at += kBlock) {
          const int64_t width = std::min<int64_t>(kBlock, columns - at);
          const T* const solved = x + first * columns + at;
          T* const here = x + row * columns + at;
          if (width == kBlock) {
            Substitute<kBlock>(factors, step * to_column, diagonal, done, solved, step * columns, width, here);
          } else {
            Substitute<Eigen::Dynamic>(factors, step * to_column, diagonal, done, solved, step * columns, width, here);
          }
        }
      }
    }
  }

  bool lower_ = true;
  bool adjoint_ = false;
};

// The gradient of Cholesky from l and its gradient: l^-H (m + m^H) l^-1 / 2 with m the lower part of l^H g, its
// diagonal halved.
class CholeskyGradKernel : public Kernel {
 public:
  explicit CholeskyGradKernel(KernelInit& init) {
    if (!DispatchType(RealOnly{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch l, MatrixBatch::Of(ctx.input(0)));
    if (l.rows != l.columns) return InvalidArgument("Input matrices must be squares, got ", l.rows, " != ", l.columns);
    if (ctx.input(0).shape() != ctx.input(1).shape()) {
      return InvalidArgument("Inputs must have the same shape, got ", ctx.input(0).shape().ToString(), " and ",
                             ctx.input(1).shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, ctx.input(0).shape()));
    if (out->num_elements() == 0) return absl::OkStatus();
    DispatchType(RealOnly{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < l.count; ++i) {
        const int n = static_cast<int>(l.rows);
        const auto at = [n](int row, int column) { return static_cast<size_t>(row) * n + column; };
        const std::vector<double> lower = WideAt<T>(ctx.input(0), i, n, n);
        std::vector<double> g = WideAt<T>(ctx.input(1), i, n, n), m(lower.size()), l_only = lower;
        for (int row = 0; row < n; ++row) {
          for (int column = row + 1; column < n; ++column) l_only[at(row, column)] = g[at(row, column)] = 0;
        }
        // Row-major m = l^T g is, transposed, g^T l.
        Gemm('N', 'T', n, n, n, g.data(), n, l_only.data(), n, m.data(), n);
        for (int row = 0; row < n; ++row) {
          for (int column = row + 1; column < n; ++column) m[at(row, column)] = m[at(column, row)];
        }
        // The symmetric l^-T m l^-1, halved.
        Trsm('L', 'U', 'N', n, n, lower.data(), n, m.data(), n);
        Trsm('R', 'U', 'T', n, n, lower.data(), n, m.data(), n);
        for (double& value : m) value *= 0.5;
        StoreAt<T>(m, i, out);
      }
    });
    return absl::OkStatus();
  }

 private:
  using RealOnly = Types<float, double>;
};

Status TriangularSolveShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, SquareMatrices(c, 0));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRankAtLeast(1, 2));
  if (!a.known_rank() || !b.known_rank()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(PartialShape out, BroadcastShapes(PartialShape(a.dims().subspan(0, a.rank() - 2)),
                                                        PartialShape(b.dims().subspan(0, b.rank() - 2))));
  const int64_t m = a.dim(a.rank() - 1), n = b.dim(b.rank() - 2);
  if (m >= 0 && n >= 0 && m != n) return InvalidArgument("Dimensions must be equal, but are ", m, " and ", n);
  out.AddDim(std::max(m, n));
  out.AddDim(b.dim(b.rank() - 1));
  c.set_output(0, std::move(out));
  return absl::OkStatus();
}

Status TriangularSolveGradient(GradientContext& c) {
  const bool lower = c.AttrOr<bool>("lower", true), adjoint = c.AttrOr<bool>("adjoint", false);
  const Endpoint a = c.input(0), x = c.output(0);
  const Endpoint gb = c.Op("MatrixTriangularSolve", {a, c.grad()}, {{"lower", lower}, {"adjoint", !adjoint}});
  const Endpoint full = c.Neg(adjoint ? Product(c, x, gb, false, true) : Product(c, gb, x, false, true));
  const Endpoint ga = lower ? BandPart(c, full, -1, 0) : BandPart(c, full, 0, -1);
  const PartialShape &as = a.shape(), &bs = c.input(1).shape();
  if (as.known_rank() && bs.known_rank() && as.rank() == bs.rank() &&
      as.dims().subspan(0, as.rank() - 2) == bs.dims().subspan(0, bs.rank() - 2) && as.IsFullyDefined() &&
      bs.IsFullyDefined()) {
    c.set_input_grad(0, ga);
    c.set_input_grad(1, gb);
    return c.status();
  }
  // Sum over the batch dimensions that were broadcast.
  const auto batch = [&](Endpoint e) {
    return c.Op("StridedSlice", {c.Shape(e), c.Ints({0}), c.Ints({-2}), c.Ints({1})}, {{"begin_mask", 1}});
  };
  Node* const axes = c.AddNode("BroadcastGradientArgs", {batch(a), batch(c.input(1))});
  if (axes == nullptr) return c.status();
  const auto reduce = [&](Endpoint g, int which, Endpoint like) {
    return c.Reshape(c.Op("Sum", {g, Endpoint{axes, which}}), c.Shape(like));
  };
  c.set_input_grad(0, reduce(ga, 0, a));
  c.set_input_grad(1, reduce(gb, 1, c.input(1)));
  return c.status();
}

}  // namespace

MILLRACE_OP(MatrixTriangularSolve)
    .Input("matrix: T")
    .Input("rhs: T")
    .Output("output: T")
    .Attr("lower: bool = true")
    .Attr("adjoint: bool = false")
    .Attr("T: {bfloat16, double, float, half, complex64, complex128}")
    .Shape(TriangularSolveShape)
    .Gradient(TriangularSolveGradient)
    .Summary("The solutions x of matrix x = rhs for triangular matrices");
MILLRACE_OP(CholeskyGrad)
    .Input("l: T")
    .Input("grad: T")
    .Output("output: T")
    .Attr("T: {half, float, double}")
    .Shape(SquareMatricesShape)
    .NotDifferentiable()
    .Summary("The gradient of Cholesky");

MILLRACE_KERNEL(MatrixTriangularSolve, kCpu, MatrixTriangularSolveKernel);
MILLRACE_KERNEL(CholeskyGrad, kCpu, CholeskyGradKernel);

}  // namespace millrace::linalg
