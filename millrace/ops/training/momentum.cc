// Momentum, optionally Nesterov, in TensorFlow's and Keras' form.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

// v: variable, accumulator.
struct Momentum {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "momentum"};
  static constexpr const char* kFlag = "use_nesterov";
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool flag) : lr(s[0]), momentum(s[1]), use_nesterov(flag) {}

    void operator()(T* v, T grad) const {
      v[1] = v[1] * momentum + grad;
      v[0] -= use_nesterov ? grad * lr + v[1] * momentum * lr : v[1] * lr;
    }

    const T lr, momentum;
    const bool use_nesterov;
  };
};

// The accumulator includes the learning rate.
struct KerasMomentum {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "momentum"};
  static constexpr const char* kFlag = "use_nesterov";
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool flag) : lr(s[0]), momentum(s[1]), use_nesterov(flag) {}

    void operator()(T* v, T grad) const {
      v[1] = v[1] * momentum - grad * lr;
      v[0] += use_nesterov ? v[1] * momentum - grad * lr : v[1];
    }

    const T lr, momentum;
    const bool use_nesterov;
  };
};

MILLRACE_OP(ApplyMomentum)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("grad: T")
    .Input("momentum: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Momentum update.");

MILLRACE_OP(ResourceApplyMomentum)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("momentum: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Momentum update of resource variables.");

MILLRACE_OP(SparseApplyMomentum)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("momentum: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse momentum update.");

MILLRACE_OP(ResourceSparseApplyMomentum)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("momentum: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse momentum update of resource variables.");

MILLRACE_OP(ResourceApplyKerasMomentum)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("momentum: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Momentum (Keras form) update of resource variables.");

MILLRACE_OP(ResourceSparseApplyKerasMomentum)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("momentum: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse momentum (Keras form) update of resource variables.");

MILLRACE_KERNEL(ApplyMomentum, kCpu, OptimizerKernelOf<Momentum>);
MILLRACE_KERNEL(ResourceApplyMomentum, kCpu, OptimizerKernelOf<Momentum>);
MILLRACE_KERNEL(SparseApplyMomentum, kCpu, OptimizerKernelOf<Momentum>);
MILLRACE_KERNEL(ResourceSparseApplyMomentum, kCpu, OptimizerKernelOf<Momentum>);
MILLRACE_KERNEL(ResourceApplyKerasMomentum, kCpu, OptimizerKernelOf<KerasMomentum>);
MILLRACE_KERNEL(ResourceSparseApplyKerasMomentum, kCpu, OptimizerKernelOf<KerasMomentum>);

}  // namespace
}  // namespace millrace
