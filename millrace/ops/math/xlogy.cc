// Xlogy, Xlog1py, Xdivy: products that are 0 where x is 0, whatever y is.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/array_binary.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

// y = x * log(b), and 0 where x is 0.
template <typename Log>
void TimesLog(const float* x, const float* b, float* y, int64_t n, Log log) {
  float logs[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t m = std::min(kBlock, n - begin);
    log(b + begin, logs, m);
    for (int64_t i = 0; i < m; ++i) {
      const float product = x[begin + i] * logs[i];
      y[begin + i] = x[begin + i] == 0 ? 0.0f : product;
    }
  }
}

struct XlogyFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T x, T y) const {
    return x == T(0) ? T(0) : x * std::log(y);
  }
  static void Run(const float* x, const float* b, float* y, int64_t n) {
    TimesLog(x, b, y, n, [](const float* from, float* to, int64_t m) { vector::Log(from, to, m); });
  }
};
struct Xlog1pyFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T x, T y) const {
    if (x == T(0)) return T(0);
    if constexpr (kIsComplex<T>) {
      return x * std::log(T(1) + y);
    } else {
      return x * std::log1p(y);
    }
  }
  static void Run(const float* x, const float* b, float* y, int64_t n) {
    TimesLog(x, b, y, n, [](const float* from, float* to, int64_t m) { vector::Log1p(from, to, m); });
  }
};
struct XdivyFn {
  template <typename T>
  T operator()(T x, T y) const {
    return x == T(0) ? T(0) : x / y;
  }
};

// 1 where x is not 0, else 0.
Endpoint IsNotZero(GradientContext& c) {
  const Endpoint x = c.input(0);
  return c.Cast(c.Op("NotEqual", {x, c.ScalarLike(0, x.dtype())}), x.dtype());
}

Status XlogyGradient(GradientContext& c) {
  const Endpoint x = c.input(0), y = c.input(1), g = c.grad();
  c.SetBroadcastGrads(0, c.Mul(c.Op("Xlogy", {IsNotZero(c), y}), g), 1, c.Mul(c.Op("Xdivy", {x, y}), g));
  return c.status();
}
Status Xlog1pyGradient(GradientContext& c) {
  const Endpoint x = c.input(0), y = c.input(1), g = c.grad();
  const Endpoint y1 = c.Add(y, c.ScalarLike(1, y.dtype()));
  c.SetBroadcastGrads(0, c.Mul(c.Op("Xlog1py", {IsNotZero(c), y}), g), 1, c.Mul(c.Op("Xdivy", {x, y1}), g));
  return c.status();
}
Status XdivyGradient(GradientContext& c) {
  const Endpoint x = c.input(0), y = c.input(1), g = c.grad();
  const Endpoint by_y2 = c.Op("Xdivy", {c.Neg(x), c.Op("Square", {y})});
  c.SetBroadcastGrads(0, c.Mul(c.Op("Xdivy", {IsNotZero(c), y}), g), 1, c.Mul(by_y2, g));
  return c.status();
}

}  // namespace

MILLRACE_OP(Xlogy)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {half, bfloat16, float, double, complex64, complex128}")
    .Shape(BroadcastShape)
    .Gradient(XlogyGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("x * log(y), and 0 where x is 0, broadcast");
MILLRACE_OP(Xlog1py)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {half, bfloat16, float, double, complex64, complex128}")
    .Shape(BroadcastShape)
    .Gradient(Xlog1pyGradient)
    .Summary("x * log(1 + y), and 0 where x is 0, broadcast");
MILLRACE_OP(Xdivy)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {half, bfloat16, float, double, complex64, complex128}")
    .Shape(BroadcastShape)
    .Gradient(XdivyGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("x / y, and 0 where x is 0, broadcast");

MILLRACE_KERNEL(Xlogy, kCpu, ArrayBinaryOf<XlogyFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Xlog1py, kCpu, ArrayBinaryOf<Xlog1pyFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Xdivy, kCpu, BinaryOf<XdivyFn, FloatAndComplexTypes>);

}  // namespace millrace
