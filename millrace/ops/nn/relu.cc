// Relu, Relu6 and LeakyRelu.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/nn/activation_kernels.h"

namespace millrace {
namespace {

// d/dx of a gradient op in its first operand is the op itself; in the second it is zero almost everywhere.
Status ReluGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("ReluGrad", {c.grad(), c.output(0)}));
  return absl::OkStatus();
}
Status ReluGradGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("ReluGrad", {c.grad(), c.input(1)}));
  c.set_input_grad(1, c.ZerosLike(c.input(1)));
  return absl::OkStatus();
}
Status Relu6Gradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("Relu6Grad", {c.grad(), c.output(0)}));
  return absl::OkStatus();
}
Status Relu6GradGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("Relu6Grad", {c.grad(), c.input(1)}));
  c.set_input_grad(1, c.ZerosLike(c.input(1)));
  return absl::OkStatus();
}
Status LeakyReluGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const float alpha, c.Attr<float>("alpha"));
  c.set_input_grad(0, c.Op("LeakyReluGrad", {c.grad(), c.input(0)}, {{"alpha", alpha}}));
  return absl::OkStatus();
}
Status LeakyReluGradGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const float alpha, c.Attr<float>("alpha"));
  c.set_input_grad(0, c.Op("LeakyReluGrad", {c.grad(), c.input(1)}, {{"alpha", alpha}}));
  c.set_input_grad(1, c.ZerosLike(c.input(1)));
  return absl::OkStatus();
}

MILLRACE_OP(Relu)
    .Trait(OpTrait::kActivation)
    .Summary("max(x, 0).")
    .Input("features: T")
    .Output("activations: T")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
        "qint8}")
    .Shape(UnchangedShape)
    .Gradient(ReluGradient);

MILLRACE_OP(ReluGrad)
    .Summary("The gradient of Relu: `gradients` where `features` (or Relu of them) are above 0.")
    .Input("gradients: T")
    .Input("features: T")
    .Output("backprops: T")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Shape(MergedShape)
    .Gradient(ReluGradGradient);

MILLRACE_OP(Relu6)
    .Trait(OpTrait::kActivation)
    .Summary("min(max(x, 0), 6).")
    .Input("features: T")
    .Output("activations: T")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Shape(UnchangedShape)
    .Gradient(Relu6Gradient);

MILLRACE_OP(Relu6Grad)
    .Summary("The gradient of Relu6: `gradients` where `features` are between 0 and 6.")
    .Input("gradients: T")
    .Input("features: T")
    .Output("backprops: T")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Shape(MergedShape)
    .Gradient(Relu6GradGradient);

MILLRACE_OP(LeakyRelu)
    .Trait(OpTrait::kActivation)
    .Summary("x where it is above 0, alpha * x elsewhere.")
    .Input("features: T")
    .Output("activations: T")
    .Attr("alpha: float = 0.2")
    .Attr("T: {half, bfloat16, float, double} = float")
    .Shape(UnchangedShape)
    .Gradient(LeakyReluGradient);

MILLRACE_OP(LeakyReluGrad)
    .Summary("The gradient of LeakyRelu.")
    .Input("gradients: T")
    .Input("features: T")
    .Output("backprops: T")
    .Attr("alpha: float = 0.2")
    .Attr("T: {half, bfloat16, float, double} = float")
    .Shape(MergedShape)
    .Gradient(LeakyReluGradGradient);

// Comparisons are written so that NaN propagates.
struct ReluOp {
  explicit ReluOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* x, C* y, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) y[i] = ReluFn()(x[i]);
  }
};
struct ReluGradOp {
  explicit ReluGradOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* dy, const C* x, C* dx, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) dx[i] = ReluGradFn()(dy[i], x[i]);
  }
};
struct Relu6Op {
  explicit Relu6Op(KernelInit&) {}
  template <typename C>
  void operator()(const C* x, C* y, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) y[i] = Relu6Fn()(x[i]);
  }
};
struct Relu6GradOp {
  explicit Relu6GradOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* dy, const C* x, C* dx, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) dx[i] = Relu6GradFn()(dy[i], x[i]);
  }
};
struct LeakyReluOp {
  float alpha = 0;
  explicit LeakyReluOp(KernelInit& init) { init.Attr("alpha", &alpha); }
  template <typename C>
  void operator()(const C* x, C* y, int64_t n) const {
    const C slope = static_cast<C>(alpha);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] > C(0) ? x[i] : x[i] * slope;
  }
};
struct LeakyReluGradOp {
  float alpha = 0;
  explicit LeakyReluGradOp(KernelInit& init) { init.Attr("alpha", &alpha); }
  template <typename C>
  void operator()(const C* dy, const C* x, C* dx, int64_t n) const {
    const C slope = static_cast<C>(alpha);
    for (int64_t i = 0; i < n; ++i) dx[i] = x[i] > C(0) ? dy[i] : dy[i] * slope;
  }
};

MILLRACE_KERNEL(Relu, kCpu, ActivationKernel<ReluOp, RealTypes>);
MILLRACE_KERNEL(ReluGrad, kCpu, ActivationGradKernel<ReluGradOp, RealTypes>);
MILLRACE_KERNEL(Relu6, kCpu, ActivationKernel<Relu6Op, RealTypes>);
MILLRACE_KERNEL(Relu6Grad, kCpu, ActivationGradKernel<Relu6GradOp, RealTypes>);
MILLRACE_KERNEL(LeakyRelu, kCpu, ActivationKernel<LeakyReluOp, FloatTypes>);
MILLRACE_KERNEL(LeakyReluGrad, kCpu, ActivationGradKernel<LeakyReluGradOp, FloatTypes>);

}  // namespace
}  // namespace millrace
