// Cross.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

class CrossKernel : public Kernel {
 public:
  explicit CrossKernel(KernelInit& init) {
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &a = ctx.input(0), &b = ctx.input(1);
    if (a.shape() != b.shape()) {
      return InvalidArgument("Both inputs must be of same shape: ", a.shape().ToString(), " vs. ",
                             b.shape().ToString());
    }
    if (a.rank() < 1) return InvalidArgument("Input must be at least 1D");
    if (a.dim(a.rank() - 1) != 3) {
      return InvalidArgument("Cross-products are only defined for 3-element vectors.");
    }
    MR_ASSIGN_OR_RETURN(Tensor * product, ctx.AllocateOutput(0, a.shape()));
    DispatchType(RealTypes{}, a.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ComputeType<T>;
      const T *x = a.data<T>(), *y = b.data<T>();
      T* out = product->data<T>();
      for (int64_t i = 0, n = a.num_elements(); i < n; i += 3) {
        const C u[3] = {C(x[i]), C(x[i + 1]), C(x[i + 2])}, v[3] = {C(y[i]), C(y[i + 1]), C(y[i + 2])};
        for (int k = 0; k < 3; ++k) {
          out[i + k] = static_cast<T>(u[(k + 1) % 3] * v[(k + 2) % 3] - u[(k + 2) % 3] * v[(k + 1) % 3]);
        }
      }
    });
    return absl::OkStatus();
  }
};

Status CrossShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRankAtLeast(0, 1));
  MR_ASSIGN_OR_RETURN(PartialShape shape, a.MergeWith(c.input(1)));
  if (shape.known_rank()) {
    const int last = shape.rank() - 1;
    if (last < 0 || (shape.dim(last) >= 0 && shape.dim(last) != 3)) {
      return InvalidArgument("Cross-products are only defined for 3-element vectors.");
    }
    shape.set_dim(last, 3);
  }
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

Status CrossGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("Cross", {c.input(1), c.grad()}));
  c.set_input_grad(1, c.Op("Cross", {c.grad(), c.input(0)}));
  return c.status();
}

}  // namespace

MILLRACE_OP(Cross)
    .Input("a: T")
    .Input("b: T")
    .Output("product: T")
    .Attr("T: realnumbertype")
    .Shape(CrossShape)
    .Gradient(CrossGradient)
    .Summary("The cross products of vectors of three elements");

MILLRACE_KERNEL(Cross, kCpu, CrossKernel);

}  // namespace millrace
