// Adam, AMSGrad and AdaMax.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/element_math.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

using element_math::Max;
using element_math::Sqrt;
using element_math::Square;

// v: variable, mean of gradients, mean of their squares. alpha corrects both for their start at zero.
struct Adam {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"};
  static constexpr const char* kFlag = "use_nesterov";
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool flag)
        : alpha(s[2] * Sqrt(T(1) - s[1]) / (T(1) - s[0])),
          beta1(s[3]),
          beta2(s[4]),
          epsilon(s[5]),
          use_nesterov(flag) {}

    void operator()(T* v, T grad) const {
      v[1] += (grad - v[1]) * (T(1) - beta1);
      v[2] += (Square(grad) - v[2]) * (T(1) - beta2);
      const T direction = use_nesterov ? grad * (T(1) - beta1) + beta1 * v[1] : v[1];
      v[0] -= direction * alpha / (Sqrt(v[2]) + epsilon);
    }

    const T alpha, beta1, beta2, epsilon;
    const bool use_nesterov;
  };
};

// Adam with the maximum mean square so far, v[3], instead of the current one.
struct Amsgrad {
  static constexpr int kVariables = 4;
  static constexpr const char* kScalars[] = {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = FloatTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : alpha(s[2] * Sqrt(T(1) - s[1]) / (T(1) - s[0])), beta1(s[3]), beta2(s[4]), epsilon(s[5]) {}

    void operator()(T* v, T grad) const {
      v[1] += (grad - v[1]) * (T(1) - beta1);
      v[2] += (Square(grad) - v[2]) * (T(1) - beta2);
      v[3] = Max(v[3], v[2]);
      v[0] -= v[1] * alpha / (Sqrt(v[3]) + epsilon);
    }

    const T alpha, beta1, beta2, epsilon;
  };
};

// v: variable, mean of gradients, greatest gradient so far, fading.
struct AdaMax {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"beta1_power", "lr", "beta1", "beta2", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = FloatTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : alpha(s[1] / (T(1) - s[0])), beta1(s[2]), beta2(s[3]), epsilon(s[4]) {}

    void operator()(T* v, T grad) const {
      v[1] += (grad - v[1]) * (T(1) - beta1);
      v[2] = Max(beta2 * v[2], std::abs(grad));
      v[0] -= alpha * (v[1] / (v[2] + epsilon));
    }

    const T alpha, beta1, beta2, epsilon;
  };
};

MILLRACE_OP(ApplyAdam)
    .Input("var: Ref(T)")
    .Input("m: Ref(T)")
    .Input("v: Ref(T)")
    .Input("beta1_power: T")
    .Input("beta2_power: T")
    .Input("lr: T")
    .Input("beta1: T")
    .Input("beta2: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adam update.");

MILLRACE_OP(ResourceApplyAdam)
    .Input("var: resource")
    .Input("m: resource")
    .Input("v: resource")
    .Input("beta1_power: T")
    .Input("beta2_power: T")
    .Input("lr: T")
    .Input("beta1: T")
    .Input("beta2: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adam update of resource variables.");

MILLRACE_OP(ResourceApplyAdamWithAmsgrad)
    .Input("var: resource")
    .Input("m: resource")
    .Input("v: resource")
    .Input("vhat: resource")
    .Input("beta1_power: T")
    .Input("beta2_power: T")
    .Input("lr: T")
    .Input("beta1: T")
    .Input("beta2: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adam (AMSGrad) update of resource variables.");

MILLRACE_OP(ApplyAdaMax)
    .Input("var: Ref(T)")
    .Input("m: Ref(T)")
    .Input("v: Ref(T)")
    .Input("beta1_power: T")
    .Input("lr: T")
    .Input("beta1: T")
    .Input("beta2: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("AdaMax update.");

MILLRACE_OP(ResourceApplyAdaMax)
    .Input("var: resource")
    .Input("m: resource")
    .Input("v: resource")
    .Input("beta1_power: T")
    .Input("lr: T")
    .Input("beta1: T")
    .Input("beta2: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("AdaMax update of resource variables.");

MILLRACE_KERNEL(ApplyAdam, kCpu, OptimizerKernelOf<Adam>);
MILLRACE_KERNEL(ResourceApplyAdam, kCpu, OptimizerKernelOf<Adam>);
MILLRACE_KERNEL(ResourceApplyAdamWithAmsgrad, kCpu, OptimizerKernelOf<Amsgrad>);
MILLRACE_KERNEL(ApplyAdaMax, kCpu, OptimizerKernelOf<AdaMax>);
MILLRACE_KERNEL(ResourceApplyAdaMax, kCpu, OptimizerKernelOf<AdaMax>);

}  // namespace
}  // namespace millrace
