// MatrixInverse, MatrixSolve.
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/linalg/dense_linalg.h"
#include "millrace/ops/linalg/matrix_shapes.h"

namespace millrace {
namespace {

using SolveTypes = Types<float, double, std::complex<float>, std::complex<double>>;

constexpr char kNotInvertible[] = "Input matrix is not invertible.";

class MatrixInverseKernel : public Kernel {
 public:
  explicit MatrixInverseKernel(KernelInit& init) {
    init.Attr("adjoint", &adjoint_);
    using InverseTypes = JoinTypes<SolveTypes, Types<half>>::type;
    if (!DispatchType(InverseTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const linalg::SquareBatch batch, linalg::SquareBatch::Of(input));
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, input.shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    bool ok = true;
    if (input.dtype() == DType::kHalf) {
      ok = Invert<half>(batch, input, output);
    } else {
      DispatchType(SolveTypes{}, input.dtype(),
                   [&](auto tag) { ok = Invert<typename decltype(tag)::type>(batch, input, output); });
    }
    return ok ? absl::OkStatus() : InvalidArgument(kNotInvertible);
  }

 private:
  template <typename T>
  bool Invert(const linalg::SquareBatch& batch, const Tensor& input, Tensor* output) const {
    using C = ComputeType<T>;
    const int64_t n = batch.n, size = n * n;
    std::vector<C> unit(size, C(0)), wide(size), result(size);
    for (int64_t i = 0; i < n; ++i) unit[i * n + i] = C(1);
    for (int64_t i = 0; i < batch.count; ++i) {
      const T* a = input.data<T>() + i * size;
      std::transform(a, a + size, wide.begin(), [](T v) { return static_cast<C>(v); });
      if (!linalg::Solve<C>(wide.data(), n, adjoint_, unit.data(), n, result.data())) return false;
      std::transform(result.begin(), result.end(), output->data<T>() + i * size, [](C v) { return static_cast<T>(v); });
    }
    return true;
  }

  bool adjoint_ = false;
};

class MatrixSolveKernel : public Kernel {
 public:
  explicit MatrixSolveKernel(KernelInit& init) {
    init.Attr("adjoint", &adjoint_);
    if (!DispatchType(SolveTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &matrix = ctx.input(0), &rhs = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const linalg::SquareBatch batch, linalg::SquareBatch::Of(matrix));
    bool fits = rhs.rank() == matrix.rank();
    for (int d = 0; fits && d < matrix.rank() - 1; ++d) fits = rhs.dim(d) == matrix.dim(d);
    if (!fits) {
      return InvalidArgument("Input matrix and rhs are incompatible: ", matrix.shape().ToString(), " vs. ",
                             rhs.shape().ToString());
    }
    const int64_t columns = rhs.dim(rhs.rank() - 1);
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, rhs.shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    bool ok = true;
    DispatchType(SolveTypes{}, matrix.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; ok && i < batch.count; ++i) {
        ok =
            linalg::Solve<T>(matrix.data<T>() + i * batch.n * batch.n, batch.n, adjoint_,
                             rhs.data<T>() + i * batch.n * columns, columns, output->data<T>() + i * batch.n * columns);
      }
    });
    return ok ? absl::OkStatus() : InvalidArgument(kNotInvertible);
  }

 private:
  bool adjoint_ = false;
};

Status MatrixSolveShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(SquareMatrices(c, 0).status());
  MR_ASSIGN_OR_RETURN(PartialShape rhs, c.WithRankAtLeast(1, 2));
  c.set_output(0, std::move(rhs));
  return absl::OkStatus();
}

Endpoint Product(GradientContext& c, Endpoint x, Endpoint y, bool adjoint_x, bool adjoint_y) {
  return c.Op("BatchMatMulV2", {x, y}, {{"adj_x", adjoint_x}, {"adj_y", adjoint_y}});
}

// -y^H g y^H for the inverse y; for its adjoint, the adjoint of that.
Status MatrixInverseGradient(GradientContext& c) {
  const Endpoint y = c.output(0), g = c.grad();
  if (c.AttrOr<bool>("adjoint", false)) {
    c.set_input_grad(0, c.Neg(Product(c, y, Product(c, g, y, true, false), false, false)));
  } else {
    c.set_input_grad(0, c.Neg(Product(c, y, Product(c, g, y, false, true), true, false)));
  }
  return c.status();
}

Status MatrixSolveGradient(GradientContext& c) {
  const bool adjoint = c.AttrOr<bool>("adjoint", false);
  const Endpoint a = c.input(0), x = c.output(0);
  const Endpoint gb = c.Op("MatrixSolve", {a, c.grad()}, {{"adjoint", !adjoint}});
  c.set_input_grad(0, c.Neg(adjoint ? Product(c, x, gb, false, true) : Product(c, gb, x, false, true)));
  c.set_input_grad(1, gb);
  return c.status();
}

}  // namespace

MILLRACE_OP(MatrixInverse)
    .Input("input: T")
    .Output("output: T")
    .Attr("adjoint: bool = false")
    .Attr("T: {double, float, half, complex64, complex128}")
    .Shape(SquareMatricesShape)
    .Gradient(MatrixInverseGradient)
    .Summary("The inverses of square matrices, optionally adjoint");
MILLRACE_OP(MatrixSolve)
    .Input("matrix: T")
    .Input("rhs: T")
    .Output("output: T")
    .Attr("adjoint: bool = false")
    .Attr("T: {double, float, half, complex64, complex128}")
    .Shape(MatrixSolveShape)
    .Gradient(MatrixSolveGradient)
    .Summary("The solutions x of matrix x = rhs");

MILLRACE_KERNEL(MatrixInverse, kCpu, MatrixInverseKernel);
MILLRACE_KERNEL(MatrixSolve, kCpu, MatrixSolveKernel);

}  // namespace millrace
