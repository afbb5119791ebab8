// MatrixDeterminant.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/linalg/dense_linalg.h"
#include "millrace/ops/linalg/matrix_shapes.h"

namespace millrace {
namespace {

using DeterminantTypes = Types<float, double, std::complex<float>, std::complex<double>>;

class MatrixDeterminantKernel : public Kernel {
 public:
  explicit MatrixDeterminantKernel(KernelInit& init) {
    if (!DispatchType(DeterminantTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const linalg::SquareBatch batch, linalg::SquareBatch::Of(input));
    const Shape shape(input.shape().dims().subspan(0, input.rank() - 2));
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    DispatchType(DeterminantTypes{}, input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < batch.count; ++i) {
        output->data<T>()[i] = linalg::Determinant<T>(input.data<T>() + i * batch.n * batch.n, batch.n);
      }
    });
    return absl::OkStatus();
  }
};

Status MatrixDeterminantShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape shape, SquareMatrices(c, 0));
  if (shape.known_rank()) c.set_output(0, PartialShape(shape.dims().subspan(0, shape.rank() - 2)));
  return absl::OkStatus();
}

// g det(a) times the adjoint of the inverse.
Status MatrixDeterminantGradient(GradientContext& c) {
  const Endpoint inverse = c.Op("MatrixInverse", {c.input(0)}, {{"adjoint", true}});
  const Endpoint factor = c.Mul(c.grad(), c.Conj(c.output(0)));
  const Endpoint shape = c.Op("ConcatV2", {c.Shape(c.output(0)), c.Ints({1, 1}), c.Scalar<int32_t>(0)});
  c.set_input_grad(0, c.Mul(c.Reshape(factor, shape), inverse));
  return c.status();
}

}  // namespace

MILLRACE_OP(MatrixDeterminant)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: {half, float, double, complex64, complex128}")
    .Shape(MatrixDeterminantShape)
    .Gradient(MatrixDeterminantGradient)
    .Summary("The determinants of square matrices");

MILLRACE_KERNEL(MatrixDeterminant, kCpu, MatrixDeterminantKernel);

}  // namespace millrace
