// RMSProp, plain and centered.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/element_math.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

using element_math::Rsqrt;
using element_math::Square;

// v: variable, mean square of gradients, momentum.
struct RmsProp {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "rho", "momentum", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : lr(s[0]), rho(s[1]), momentum(s[2]), epsilon(s[3]) {}

    void operator()(T* v, T grad) const {
      v[1] += (Square(grad) - v[1]) * (T(1) - rho);
      v[2] = v[2] * momentum + grad * lr * Rsqrt(v[1] + epsilon);
      v[0] -= v[2];
    }

    const T lr, rho, momentum, epsilon;
  };
};

// v: variable, mean of gradients, mean of their squares, momentum.
struct CenteredRmsProp {
  static constexpr int kVariables = 4;
  static constexpr const char* kScalars[] = {"lr", "rho", "momentum", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : lr(s[0]), rho(s[1]), momentum(s[2]), epsilon(s[3]) {}

    void operator()(T* v, T grad) const {
      v[2] += (Square(grad) - v[2]) * (T(1) - rho);
      v[1] += (grad - v[1]) * (T(1) - rho);
      v[3] = v[3] * momentum + grad * lr * Rsqrt(v[2] - Square(v[1]) + epsilon);
      v[0] -= v[3];
    }

    const T lr, rho, momentum, epsilon;
  };
};

MILLRACE_OP(ApplyRMSProp)
    .Input("var: Ref(T)")
    .Input("ms: Ref(T)")
    .Input("mom: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("RMSProp update.");

MILLRACE_OP(ResourceApplyRMSProp)
    .Input("var: resource")
    .Input("ms: resource")
    .Input("mom: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("RMSProp update of resource variables.");

MILLRACE_OP(SparseApplyRMSProp)
    .Input("var: Ref(T)")
    .Input("ms: Ref(T)")
    .Input("mom: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse RMSProp update.");

MILLRACE_OP(ResourceSparseApplyRMSProp)
    .Input("var: resource")
    .Input("ms: resource")
    .Input("mom: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse RMSProp update of resource variables.");

MILLRACE_OP(ApplyCenteredRMSProp)
    .Input("var: Ref(T)")
    .Input("mg: Ref(T)")
    .Input("ms: Ref(T)")
    .Input("mom: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Centered RMSProp update.");

MILLRACE_OP(ResourceApplyCenteredRMSProp)
    .Input("var: resource")
    .Input("mg: resource")
    .Input("ms: resource")
    .Input("mom: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Centered RMSProp update of resource variables.");

MILLRACE_OP(SparseApplyCenteredRMSProp)
    .Input("var: Ref(T)")
    .Input("mg: Ref(T)")
    .Input("ms: Ref(T)")
    .Input("mom: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse centered RMSProp update.");

MILLRACE_OP(ResourceSparseApplyCenteredRMSProp)
    .Input("var: resource")
    .Input("mg: resource")
    .Input("ms: resource")
    .Input("mom: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse centered RMSProp update of resource variables.");

MILLRACE_KERNEL(ApplyRMSProp, kCpu, OptimizerKernelOf<RmsProp>);
MILLRACE_KERNEL(ResourceApplyRMSProp, kCpu, OptimizerKernelOf<RmsProp>);
MILLRACE_KERNEL(SparseApplyRMSProp, kCpu, OptimizerKernelOf<RmsProp>);
MILLRACE_KERNEL(ResourceSparseApplyRMSProp, kCpu, OptimizerKernelOf<RmsProp>);
MILLRACE_KERNEL(ApplyCenteredRMSProp, kCpu, OptimizerKernelOf<CenteredRmsProp>);
MILLRACE_KERNEL(ResourceApplyCenteredRMSProp, kCpu, OptimizerKernelOf<CenteredRmsProp>);
MILLRACE_KERNEL(SparseApplyCenteredRMSProp, kCpu, OptimizerKernelOf<CenteredRmsProp>);
MILLRACE_KERNEL(ResourceSparseApplyCenteredRMSProp, kCpu, OptimizerKernelOf<CenteredRmsProp>);

}  // namespace
}  // namespace millrace
