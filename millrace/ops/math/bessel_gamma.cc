// Bessel functions, incomplete gamma and beta functions, Zeta, Polygamma, Ndtri, Erfinv: Eigen's.
#include <unsupported/Eigen/SpecialFunctions>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

#define MR_UNARY_SPECIAL(Name, expression, summary)         \
  struct Name##Function {                                   \
    static constexpr int64_t kGrain = kCostlyGrain;         \
    template <typename T>                                   \
    T operator()(T x) const {                               \
      return expression;                                    \
    }                                                       \
  };                                                        \
  MILLRACE_OP(Name)                                         \
      .Input("x: T")                                        \
      .Output("y: T")                                       \
      .Attr("T: {bfloat16, half, float, double}")           \
      .Shape(UnchangedShape)                                \
      .Trait(OpTrait::kElementwise)                         \
      .Summary(summary);                                    \
  using Name##Kernel = UnaryOf<Name##Function, FloatTypes>; \
  MILLRACE_KERNEL(Name, kCpu, Name##Kernel)

MR_UNARY_SPECIAL(BesselI0, Eigen::numext::bessel_i0(x), "The modified Bessel function of order 0.");
MR_UNARY_SPECIAL(BesselI1, Eigen::numext::bessel_i1(x), "The modified Bessel function of order 1.");
MR_UNARY_SPECIAL(BesselI0e, Eigen::numext::bessel_i0e(x), "BesselI0, scaled by exp(-|x|).");
MR_UNARY_SPECIAL(BesselI1e, Eigen::numext::bessel_i1e(x), "BesselI1, scaled by exp(-|x|).");
MR_UNARY_SPECIAL(BesselK0, Eigen::numext::bessel_k0(x), "The modified Bessel function of the second kind, order 0.");
MR_UNARY_SPECIAL(BesselK1, Eigen::numext::bessel_k1(x), "The modified Bessel function of the second kind, order 1.");
MR_UNARY_SPECIAL(BesselK0e, Eigen::numext::bessel_k0e(x), "BesselK0, scaled by exp(x).");
MR_UNARY_SPECIAL(BesselK1e, Eigen::numext::bessel_k1e(x), "BesselK1, scaled by exp(x).");
MR_UNARY_SPECIAL(BesselJ0, Eigen::numext::bessel_j0(x), "The Bessel function of order 0.");
MR_UNARY_SPECIAL(BesselJ1, Eigen::numext::bessel_j1(x), "The Bessel function of order 1.");
MR_UNARY_SPECIAL(BesselY0, Eigen::numext::bessel_y0(x), "The Bessel function of the second kind, order 0.");
MR_UNARY_SPECIAL(BesselY1, Eigen::numext::bessel_y1(x), "The Bessel function of the second kind, order 1.");
MR_UNARY_SPECIAL(Ndtri, Eigen::numext::ndtri(x), "The inverse of the normal distribution function.");
MR_UNARY_SPECIAL(Erfinv, Eigen::numext::ndtri((x + T(1)) / T(2)) * T(0.70710678118654752), "The inverse of Erf.");

#define MR_BINARY_SPECIAL(Name, first, second, types, expression, summary) \
  struct Name##Function {                                                  \
    static constexpr int64_t kGrain = kCostlyGrain;                        \
    template <typename T>                                                  \
    T operator()(T a, T x) const {                                         \
      return expression;                                                   \
    }                                                                      \
  };                                                                       \
  MILLRACE_OP(Name)                                                        \
      .Input(first)                                                        \
      .Input(second)                                                       \
      .Output("z: T")                                                      \
      .Attr(types)                                                         \
      .Shape(BroadcastShape)                                               \
      .Trait(OpTrait::kElementwise)                                        \
      .Summary(summary);                                                   \
  using Name##Kernel = BinaryOf<Name##Function, FloatTypes>;               \
  MILLRACE_KERNEL(Name, kCpu, Name##Kernel)

MR_BINARY_SPECIAL(Igamma, "a: T", "x: T", "T: {bfloat16, half, float, double}", Eigen::numext::igamma(a, x),
                  "The lower regularized incomplete gamma function.");
MR_BINARY_SPECIAL(Igammac, "a: T", "x: T", "T: {bfloat16, half, float, double}", Eigen::numext::igammac(a, x),
                  "The upper regularized incomplete gamma function.");
MR_BINARY_SPECIAL(IgammaGradA, "a: T", "x: T", "T: {float, double}", Eigen::numext::igamma_der_a(a, x),
                  "The derivative of Igamma with respect to a.");
MR_BINARY_SPECIAL(Zeta, "x: T", "q: T", "T: {float, double}", Eigen::numext::zeta(a, x), "The Hurwitz zeta function.");
MR_BINARY_SPECIAL(Polygamma, "a: T", "x: T", "T: {float, double}", Eigen::numext::polygamma(a, x),
                  "The derivative of order a of Digamma.");

// Three operands, of one shape or scalars.
class BetaincKernel : public Kernel {
 public:
  explicit BetaincKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    Shape shape;
    for (int i = 0; i < 3; ++i) {
      const Shape& s = ctx.input(i).shape();
      if (s.rank() == 0) continue;
      if (shape.rank() != 0 && s != shape) {
        return InvalidArgument("Shapes of a, b and x are inconsistent: ", shape.ToString(), " vs. ", s.ToString());
      }
      shape = s;
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    DispatchType(Types<float, double>{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* in[3];
      int64_t step[3];
      for (int i = 0; i < 3; ++i) {
        in[i] = ctx.input(i).data<T>();
        step[i] = ctx.input(i).rank() == 0 ? 0 : 1;
      }
      ctx.ParallelFor(out->num_elements(), kCostlyGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          out->data<T>()[i] = Eigen::numext::betainc(in[0][i * step[0]], in[1][i * step[1]], in[2][i * step[2]]);
        }
      });
    });
    return absl::OkStatus();
  }
};

Status BetaincShape(ShapeContext& c) {
  PartialShape shape = PartialShape::Scalar();
  for (int i = 0; i < 3; ++i) {
    if (!c.input(i).known_rank()) return UnknownShape(c);
    if (c.input(i).rank() == 0) continue;
    if (shape.rank() == 0) {
      shape = c.input(i);
    } else {
      MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(c.input(i)));
    }
  }
  c.set_output(0, shape);
  return absl::OkStatus();
}

MILLRACE_OP(Betainc)
    .Input("a: T")
    .Input("b: T")
    .Input("x: T")
    .Output("z: T")
    .Attr("T: {float, double}")
    .Shape(BetaincShape)
    .Summary("The regularized incomplete beta function.");
MILLRACE_KERNEL(Betainc, kCpu, BetaincKernel);

}  // namespace
}  // namespace millrace
