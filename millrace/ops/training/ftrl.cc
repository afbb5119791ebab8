// FTRL (follow the regularized leader).
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/element_math.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

using element_math::Shrink;
using element_math::Sqrt;
using element_math::Square;

// v: variable, sum of squared gradients, linear term. `steered` is the gradient that enters the linear
// term. With multiply_linear_by_lr that term is kept times the learning rate.
template <typename T>
struct FtrlRule {
  // accum to the power of -lr_power; a root in the usual case.
  T Power(T accum) const { return lr_power == T(-0.5) ? Sqrt(accum) : std::pow(accum, -lr_power); }

  void Update(T* v, T grad, T steered) const {
    const T accum = v[1] + Square(grad);
    const T power = Power(accum);
    const T growth = power - Power(v[1]);
    v[2] += multiply_linear_by_lr ? steered * lr - growth * v[0] : steered - growth / lr * v[0];
    const T bound = multiply_linear_by_lr ? l1 * lr : l1;
    const T curvature = multiply_linear_by_lr ? power + T(2) * l2 * lr : power / lr + T(2) * l2;
    v[0] = -Shrink(v[2], bound) / curvature;
    v[1] = accum;
  }

  T lr, l1, l2, lr_power;
  bool multiply_linear_by_lr;
};

struct Ftrl {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "lr_power"};
  static constexpr const char* kFlag = "multiply_linear_by_lr";
  using DTypes = FloatTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool flag) : rule{s[0], s[1], s[2], s[3], flag} {}
    void operator()(T* v, T grad) const { rule.Update(v, grad, grad); }

    const FtrlRule<T> rule;
  };
};

// With L2 shrinkage, which is added to the gradient.
struct FtrlV2 {
  static constexpr int kVariables = 3;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "l2_shrinkage", "lr_power"};
  static constexpr const char* kFlag = "multiply_linear_by_lr";
  using DTypes = FloatTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool flag) : rule{s[0], s[1], s[2], s[4], flag}, l2_shrinkage(s[3]) {}
    void operator()(T* v, T grad) const { rule.Update(v, grad, grad + T(2) * l2_shrinkage * v[0]); }

    const FtrlRule<T> rule;
    const T l2_shrinkage;
  };
};

MILLRACE_OP(ApplyFtrl)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("linear: Ref(T)")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("lr_power: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("FTRL update.");

MILLRACE_OP(ResourceApplyFtrl)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("linear: resource")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("lr_power: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("FTRL update of resource variables.");

MILLRACE_OP(SparseApplyFtrl)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("linear: Ref(T)")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("lr_power: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse FTRL update.");

MILLRACE_OP(ResourceSparseApplyFtrl)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("linear: resource")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("lr_power: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse FTRL update of resource variables.");

MILLRACE_OP(ApplyFtrlV2)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("linear: Ref(T)")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("l2_shrinkage: T")
    .Input("lr_power: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("FTRL (with L2 shrinkage) update.");

MILLRACE_OP(ResourceApplyFtrlV2)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("linear: resource")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("l2_shrinkage: T")
    .Input("lr_power: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("FTRL (with L2 shrinkage) update of resource variables.");

MILLRACE_OP(SparseApplyFtrlV2)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("linear: Ref(T)")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("l2_shrinkage: T")
    .Input("lr_power: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse FTRL (with L2 shrinkage) update.");

MILLRACE_OP(ResourceSparseApplyFtrlV2)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("linear: resource")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("l2_shrinkage: T")
    .Input("lr_power: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse FTRL (with L2 shrinkage) update of resource variables.");

MILLRACE_KERNEL(ApplyFtrl, kCpu, OptimizerKernelOf<Ftrl>);
MILLRACE_KERNEL(ResourceApplyFtrl, kCpu, OptimizerKernelOf<Ftrl>);
MILLRACE_KERNEL(SparseApplyFtrl, kCpu, OptimizerKernelOf<Ftrl>);
MILLRACE_KERNEL(ResourceSparseApplyFtrl, kCpu, OptimizerKernelOf<Ftrl>);
MILLRACE_KERNEL(ApplyFtrlV2, kCpu, OptimizerKernelOf<FtrlV2>);
MILLRACE_KERNEL(ResourceApplyFtrlV2, kCpu, OptimizerKernelOf<FtrlV2>);
MILLRACE_KERNEL(SparseApplyFtrlV2, kCpu, OptimizerKernelOf<FtrlV2>);
MILLRACE_KERNEL(ResourceSparseApplyFtrlV2, kCpu, OptimizerKernelOf<FtrlV2>);

}  // namespace
}  // namespace millrace
