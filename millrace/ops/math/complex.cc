// Complex, Real, Imag, Conj, Angle, ComplexAbs.
#include <algorithm>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

struct ComplexFn {
  template <typename T>
  std::complex<T> operator()(T re, T im) const {
    return {re, im};
  }
};
struct RealFn {
  template <typename T>
  T operator()(std::complex<T> x) const {
    return x.real();
  }
};
struct ImagFn {
  template <typename T>
  T operator()(std::complex<T> x) const {
    return x.imag();
  }
};
struct ConjFn {
  template <typename T>
  T operator()(T x) const {
    return std::conj(x);
  }
};
struct AngleFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(std::complex<T> x) const {
    return std::arg(x);
  }
  // In pieces that stay in the L1 cache.
  static void Run(const std::complex<float>* x, float* y, int64_t n) {
    constexpr int64_t kPiece = 1024;
    float re[kPiece], im[kPiece];
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      const int64_t m = std::min(kPiece, n - begin);
      for (int64_t i = 0; i < m; ++i) {
        re[i] = x[begin + i].real();
        im[i] = x[begin + i].imag();
      }
      vector::Atan2(im, re, y + begin, m);
    }
  }
};
struct ComplexAbsFn {
  template <typename T>
  T operator()(std::complex<T> x) const {
    return std::abs(x);
  }
  // The squares of floats neither overflow nor underflow as doubles.
  static void Run(const std::complex<float>* x, float* y, int64_t n) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < n; ++i) {
      const float re = std::fabs(x[i].real()), im = std::fabs(x[i].imag());
      const double squares = static_cast<double>(re) * re + static_cast<double>(im) * im;
      y[i] = re == kInfinity || im == kInfinity ? kInfinity : static_cast<float>(std::sqrt(squares));
    }
  }
};

class ComplexKernel : public BinaryKernel {
 public:
  explicit ComplexKernel(KernelInit& init) {
    const bool known = DispatchType(Types<float, double>{}, init.input_type(0), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (init.output_type(0) == DTypeOf<std::complex<T>>()) loop_ = &MapBinary<ComplexFn, T, std::complex<T>>;
    });
    if (!known || loop_ == nullptr) FailDType(init, init.output_type(0));
  }
};

// From complex numbers to the real ones of the same width.
template <typename F>
class PartKernel : public UnaryKernel {
 public:
  explicit PartKernel(KernelInit& init) {
    grain_ = GrainOf<F>();
    DispatchType(ComplexTypes{}, init.input_type(0), [&](auto tag) {
      using C = typename decltype(tag)::type;
      using T = typename C::value_type;
      if (init.output_type(0) == DTypeOf<T>()) loop_ = &MapUnary<F, C, T>;
    });
    if (loop_ == nullptr) FailDType(init, init.output_type(0));
  }
};

Endpoint ComplexOf(GradientContext& c, Endpoint re, Endpoint im) {
  const DType out = re.dtype() == DType::kDouble ? DType::kComplex128 : DType::kComplex64;
  return c.Op("Complex", {re, im}, {{"Tout", out}});
}
Endpoint PartOf(GradientContext& c, const char* op, Endpoint x) {
  const DType out = x.dtype() == DType::kComplex128 ? DType::kDouble : DType::kFloat;
  return c.Op(op, {x}, {{"Tout", out}});
}
Endpoint Zero(GradientContext& c) { return c.ScalarLike(0, c.grad().dtype()); }

Status ComplexGradient(GradientContext& c) {
  c.SetBroadcastGrads(0, PartOf(c, "Real", c.grad()), 1, PartOf(c, "Imag", c.grad()));
  return c.status();
}
Status RealGradient(GradientContext& c) {
  c.set_input_grad(0, ComplexOf(c, c.grad(), Zero(c)));
  return c.status();
}
Status ImagGradient(GradientContext& c) {
  c.set_input_grad(0, ComplexOf(c, Zero(c), c.grad()));
  return c.status();
}
Status ConjGradient(GradientContext& c) {
  c.set_input_grad(0, c.Conj(c.grad()));
  return c.status();
}
Status AngleGradient(GradientContext& c) {
  const Endpoint re = PartOf(c, "Real", c.input(0)), im = PartOf(c, "Imag", c.input(0));
  const Endpoint slope = c.Op("Reciprocal", {ComplexOf(c, im, re)});
  c.set_input_grad(0, c.Mul(c.Neg(ComplexOf(c, c.grad(), Zero(c))), slope));
  return c.status();
}
Status ComplexAbsGradient(GradientContext& c) {
  const Endpoint g = ComplexOf(c, c.grad(), Zero(c)), size = ComplexOf(c, c.output(0), Zero(c));
  c.set_input_grad(0, c.Op("DivNoNan", {c.Mul(g, c.input(0)), size}));
  return c.status();
}

}  // namespace

MILLRACE_OP(Complex)
    .Input("real: T")
    .Input("imag: T")
    .Output("out: Tout")
    .Attr("T: {float, double} = float")
    .Attr("Tout: {complex64, complex128} = complex64")
    .Shape(BroadcastShape)
    .Gradient(ComplexGradient)
    .Summary("real + imag * i, broadcast");
MILLRACE_OP(Real)
    .Input("input: T")
    .Output("output: Tout")
    .Attr("T: {complex64, complex128} = complex64")
    .Attr("Tout: {float, double} = float")
    .Shape(UnchangedShape)
    .Gradient(RealGradient)
    .Summary("The real parts");
MILLRACE_OP(Imag)
    .Input("input: T")
    .Output("output: Tout")
    .Attr("T: {complex64, complex128} = complex64")
    .Attr("Tout: {float, double} = float")
    .Shape(UnchangedShape)
    .Gradient(ImagGradient)
    .Summary("The imaginary parts");
MILLRACE_OP(Conj)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: {complex64, complex128, variant} = complex64")
    .Shape(UnchangedShape)
    .Gradient(ConjGradient)
    .Summary("The complex conjugates");
MILLRACE_OP(Angle)
    .Input("input: T")
    .Output("output: Tout")
    .Attr("T: {complex64, complex128} = complex64")
    .Attr("Tout: {float, double} = float")
    .Shape(UnchangedShape)
    .Gradient(AngleGradient)
    .Summary("The arguments of complex numbers");
MILLRACE_OP(ComplexAbs)
    .Input("x: T")
    .Output("y: Tout")
    .Attr("T: {complex64, complex128} = complex64")
    .Attr("Tout: {float, double} = float")
    .Shape(UnchangedShape)
    .Gradient(ComplexAbsGradient)
    .Summary("The absolute values of complex numbers");

MILLRACE_KERNEL(Complex, kCpu, ComplexKernel);
MILLRACE_KERNEL(Real, kCpu, PartKernel<RealFn>);
MILLRACE_KERNEL(Imag, kCpu, PartKernel<ImagFn>);
MILLRACE_KERNEL(Conj, kCpu, UnaryOf<ConjFn, ComplexTypes>);
MILLRACE_KERNEL(Angle, kCpu, PartKernel<AngleFn>);
MILLRACE_KERNEL(ComplexAbs, kCpu, PartKernel<ComplexAbsFn>);

}  // namespace millrace
