// Cholesky.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/linalg/dense_linalg.h"
#include "millrace/ops/linalg/matrix_shapes.h"

namespace millrace {
namespace {

using CholeskyTypes = Types<float, double, std::complex<float>, std::complex<double>>;

class CholeskyKernel : public Kernel {
 public:
  explicit CholeskyKernel(KernelInit& init) {
    if (!DispatchType(CholeskyTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const linalg::SquareBatch batch, linalg::SquareBatch::Of(input));
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, input.shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    bool ok = true;
    DispatchType(CholeskyTypes{}, input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; ok && i < batch.count; ++i) {
        const int64_t at = i * batch.n * batch.n;
        ok = linalg::Cholesky<T>(input.data<T>() + at, batch.n, output->data<T>() + at);
      }
    });
    if (ok) return absl::OkStatus();
    return InvalidArgument("Cholesky decomposition was not successful. The input might not be valid.");
  }
};

// l^-H (m + m^H) l^-1 / 2, where m is the lower part of l^H g with its diagonal halved.
Status CholeskyGradient(GradientContext& c) {
  const Endpoint l = c.output(0);
  const auto product = [&](Endpoint x, Endpoint y, bool adjoint_x) {
    return c.Op("BatchMatMulV2", {x, y}, {{"adj_x", adjoint_x}});
  };
  const Endpoint half = c.ScalarLike(0.5, l.dtype());
  const Endpoint inner = product(l, c.grad(), true);
  const Endpoint diagonal = c.Op("MatrixDiagPart", {inner});
  const Endpoint halved = c.Op("MatrixSetDiag", {inner, c.Mul(half, diagonal)});
  const Endpoint lower = c.Op("MatrixBandPart", {halved, c.Scalar<int64_t>(-1), c.Scalar<int64_t>(0)});
  const Endpoint unit = c.Op("MatrixDiag", {c.OnesLike(diagonal)});
  const Endpoint both = c.Add(lower, product(lower, unit, true));
  const Endpoint inverse = c.Op("MatrixInverse", {l});
  c.set_input_grad(0, c.Mul(half, product(inverse, product(both, inverse, false), true)));
  return c.status();
}

}  // namespace

MILLRACE_OP(Cholesky)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: {double, float, half, complex64, complex128}")
    .Shape(SquareMatricesShape)
    .Gradient(CholeskyGradient)
    .Summary("Cholesky decompositions of positive definite matrices");

MILLRACE_KERNEL(Cholesky, kCpu, CholeskyKernel);

}  // namespace millrace
