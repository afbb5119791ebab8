// AddSign and PowerSign: larger steps if gradient and momentum have the same sign.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/element_math.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

using element_math::Sign;

// v: variable, mean of gradients.
struct AddSign {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "alpha", "sign_decay", "beta"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = FloatTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : lr(s[0]), alpha(s[1]), sign_decay(s[2]), beta(s[3]) {}

    void operator()(T* v, T grad) const {
      v[1] = v[1] * beta + grad * (T(1) - beta);
      v[0] -= lr * (alpha + sign_decay * Sign(grad) * Sign(v[1])) * grad;
    }

    const T lr, alpha, sign_decay, beta;
  };
};

struct PowerSign {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "logbase", "sign_decay", "beta"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = FloatTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : lr(s[0]), logbase(s[1]), sign_decay(s[2]), beta(s[3]) {}

    void operator()(T* v, T grad) const {
      v[1] = v[1] * beta + grad * (T(1) - beta);
      v[0] -= lr * std::exp(logbase * sign_decay * Sign(grad) * Sign(v[1])) * grad;
    }

    const T lr, logbase, sign_decay, beta;
  };
};

MILLRACE_OP(ApplyAddSign)
    .Input("var: Ref(T)")
    .Input("m: Ref(T)")
    .Input("lr: T")
    .Input("alpha: T")
    .Input("sign_decay: T")
    .Input("beta: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("AddSign update.");

MILLRACE_OP(ResourceApplyAddSign)
    .Input("var: resource")
    .Input("m: resource")
    .Input("lr: T")
    .Input("alpha: T")
    .Input("sign_decay: T")
    .Input("beta: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("AddSign update of resource variables.");

MILLRACE_OP(ApplyPowerSign)
    .Input("var: Ref(T)")
    .Input("m: Ref(T)")
    .Input("lr: T")
    .Input("logbase: T")
    .Input("sign_decay: T")
    .Input("beta: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("PowerSign update.");

MILLRACE_OP(ResourceApplyPowerSign)
    .Input("var: resource")
    .Input("m: resource")
    .Input("lr: T")
    .Input("logbase: T")
    .Input("sign_decay: T")
    .Input("beta: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("PowerSign update of resource variables.");

MILLRACE_KERNEL(ApplyAddSign, kCpu, OptimizerKernelOf<AddSign>);
MILLRACE_KERNEL(ResourceApplyAddSign, kCpu, OptimizerKernelOf<AddSign>);
MILLRACE_KERNEL(ApplyPowerSign, kCpu, OptimizerKernelOf<PowerSign>);
MILLRACE_KERNEL(ResourceApplyPowerSign, kCpu, OptimizerKernelOf<PowerSign>);

}  // namespace
}  // namespace millrace
