// Adagrad dual averaging: the variable is computed from the sums of gradients and of their squares.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/element_math.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

using element_math::Shrink;
using element_math::Sqrt;
using element_math::Square;

// v: variable, sum of gradients, sum of their squares.
struct AdagradDa {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "global_step"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = Types<float, double>;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : lr(s[0]), l1(s[1]), l2(s[2]), global_step(s[3]) {}

    void operator()(T* v, T grad) const {
      v[1] += grad;
      v[2] += Square(grad);
      const T sum = l1 > T(0) ? Shrink(v[1], l1 * global_step) : v[1];
      v[0] = -lr * sum / (l2 * global_step * lr + Sqrt(v[2]));
    }

    const T lr, l1, l2, global_step;
  };
};

MILLRACE_OP(ApplyAdagradDA)
    .Input("var: Ref(T)")
    .Input("gradient_accumulator: Ref(T)")
    .Input("gradient_squared_accumulator: Ref(T)")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("global_step: int64")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad dual averaging update.");

MILLRACE_OP(ResourceApplyAdagradDA)
    .Input("var: resource")
    .Input("gradient_accumulator: resource")
    .Input("gradient_squared_accumulator: resource")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("global_step: int64")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad dual averaging update of resource variables.");

MILLRACE_OP(SparseApplyAdagradDA)
    .Input("var: Ref(T)")
    .Input("gradient_accumulator: Ref(T)")
    .Input("gradient_squared_accumulator: Ref(T)")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("global_step: int64")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad dual averaging update.");

MILLRACE_OP(ResourceSparseApplyAdagradDA)
    .Input("var: resource")
    .Input("gradient_accumulator: resource")
    .Input("gradient_squared_accumulator: resource")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("global_step: int64")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad dual averaging update of resource variables.");

MILLRACE_KERNEL(ApplyAdagradDA, kCpu, OptimizerKernelOf<AdagradDa>);
MILLRACE_KERNEL(ResourceApplyAdagradDA, kCpu, OptimizerKernelOf<AdagradDa>);
MILLRACE_KERNEL(SparseApplyAdagradDA, kCpu, OptimizerKernelOf<AdagradDa>);
MILLRACE_KERNEL(ResourceSparseApplyAdagradDA, kCpu, OptimizerKernelOf<AdagradDa>);

}  // namespace
}  // namespace millrace
