// Adadelta.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/element_math.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

using element_math::Rsqrt;
using element_math::Sqrt;
using element_math::Square;

// v: variable, mean square of gradients, mean square of updates.
struct Adadelta {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "rho", "epsilon"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : lr(s[0]), rho(s[1]), epsilon(s[2]) {}

    void operator()(T* v, T grad) const {
      v[1] = v[1] * rho + Square(grad) * (T(1) - rho);
      const T update = Sqrt(v[2] + epsilon) * Rsqrt(v[1] + epsilon) * grad;
      v[0] -= update * lr;
      v[2] = v[2] * rho + Square(update) * (T(1) - rho);
    }

    const T lr, rho, epsilon;
  };
};

MILLRACE_OP(ApplyAdadelta)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("accum_update: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adadelta update.");

MILLRACE_OP(ResourceApplyAdadelta)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("accum_update: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adadelta update of resource variables.");

MILLRACE_OP(SparseApplyAdadelta)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("accum_update: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
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
    .Summary("Sparse Adadelta update.");

MILLRACE_OP(ResourceSparseApplyAdadelta)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("accum_update: resource")
    .Input("lr: T")
    .Input("rho: T")
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
    .Summary("Sparse Adadelta update of resource variables.");

MILLRACE_KERNEL(ApplyAdadelta, kCpu, OptimizerKernelOf<Adadelta>);
MILLRACE_KERNEL(ResourceApplyAdadelta, kCpu, OptimizerKernelOf<Adadelta>);
MILLRACE_KERNEL(SparseApplyAdadelta, kCpu, OptimizerKernelOf<Adadelta>);
MILLRACE_KERNEL(ResourceSparseApplyAdadelta, kCpu, OptimizerKernelOf<Adadelta>);

}  // namespace
}  // namespace millrace
