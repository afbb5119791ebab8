// Gradient descent, plain and proximal.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/element_math.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

using element_math::Shrink;

struct GradientDescent {
  static constexpr int kVariables = 1;
  static constexpr const char* kScalars[] = {"alpha"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : alpha(s[0]) {}

    void operator()(T* v, T grad) const { v[0] -= grad * alpha; }

    const T alpha;
  };
};

// A step of gradient descent, then the proximal step of the L1 and L2 penalties.
struct ProximalGradientDescent {
  static constexpr int kVariables = 1;
  static constexpr const char* kScalars[] = {"alpha", "l1", "l2"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = Types<float, double>;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : alpha(s[0]), l1(s[1]), l2(s[2]) {}

    void operator()(T* v, T grad) const {
      const T moved = v[0] - grad * alpha;
      v[0] = (l1 > T(0) ? Shrink(moved, alpha * l1) : moved) / (T(1) + l2 * alpha);
    }

    const T alpha, l1, l2;
  };
};

MILLRACE_OP(ApplyGradientDescent)
    .Input("var: Ref(T)")
    .Input("alpha: T")
    .Input("delta: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Gradient descent update.");

MILLRACE_OP(ResourceApplyGradientDescent)
    .Input("var: resource")
    .Input("alpha: T")
    .Input("delta: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Gradient descent update of resource variables.");

MILLRACE_OP(ApplyProximalGradientDescent)
    .Input("var: Ref(T)")
    .Input("alpha: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("delta: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Proximal gradient descent (L1 and L2) update.");

MILLRACE_OP(ResourceApplyProximalGradientDescent)
    .Input("var: resource")
    .Input("alpha: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("delta: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Proximal gradient descent (L1 and L2) update of resource variables.");

MILLRACE_OP(SparseApplyProximalGradientDescent)
    .Input("var: Ref(T)")
    .Input("alpha: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse proximal gradient descent (L1 and L2) update.");

MILLRACE_OP(ResourceSparseApplyProximalGradientDescent)
    .Input("var: resource")
    .Input("alpha: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse proximal gradient descent (L1 and L2) update of resource variables.");

MILLRACE_KERNEL(ApplyGradientDescent, kCpu, OptimizerKernelOf<GradientDescent>);
MILLRACE_KERNEL(ResourceApplyGradientDescent, kCpu, OptimizerKernelOf<GradientDescent>);
MILLRACE_KERNEL(ApplyProximalGradientDescent, kCpu, OptimizerKernelOf<ProximalGradientDescent>);
MILLRACE_KERNEL(ResourceApplyProximalGradientDescent, kCpu, OptimizerKernelOf<ProximalGradientDescent>);
MILLRACE_KERNEL(SparseApplyProximalGradientDescent, kCpu, OptimizerKernelOf<ProximalGradientDescent>);
MILLRACE_KERNEL(ResourceSparseApplyProximalGradientDescent, kCpu, OptimizerKernelOf<ProximalGradientDescent>);

}  // namespace
}  // namespace millrace
