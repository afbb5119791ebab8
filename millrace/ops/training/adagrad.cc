// Adagrad and its proximal form.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/element_math.h"
#include "millrace/ops/training/optimizer_kernel.h"

namespace millrace {
namespace {

using element_math::Rsqrt;
using element_math::Shrink;
using element_math::Sqrt;
using element_math::Square;

// v: variable, accumulator.
struct Adagrad {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr"};
  static constexpr const char* kFlag = "update_slots";
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool flag) : lr(s[0]), update_slots(flag) {}

    void operator()(T* v, T grad) const {
      if (update_slots) v[1] += Square(grad);
      v[0] -= grad * lr * Rsqrt(v[1]);
    }

    const T lr;
    const bool update_slots;
  };
};

struct AdagradV2 {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "epsilon"};
  static constexpr const char* kFlag = "update_slots";
  using DTypes = FloatAndComplexTypes;

  template <typename T>
  struct Step {
    Step(const T* s, bool flag) : lr(s[0]), epsilon(s[1]), update_slots(flag) {}

    void operator()(T* v, T grad) const {
      if (update_slots) v[1] += Square(grad);
      v[0] -= grad * lr / (Sqrt(v[1]) + epsilon);
    }

    const T lr, epsilon;
    const bool update_slots;
  };
};

struct ProximalAdagrad {
  static constexpr int kVariables = 2;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2"};
  static constexpr const char* kFlag = nullptr;
  using DTypes = Types<float, double>;

  template <typename T>
  struct Step {
    Step(const T* s, bool) : lr(s[0]), l1(s[1]), l2(s[2]) {}

    void operator()(T* v, T grad) const {
      v[1] += Square(grad);
      const T rate = lr * Rsqrt(v[1]);
      const T moved = v[0] - grad * rate;
      v[0] = (l1 > T(0) ? Shrink(moved, rate * l1) : moved) / (T(1) + l2 * rate);
    }

    const T lr, l1, l2;
  };
};

MILLRACE_OP(ApplyAdagrad)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad update.");

MILLRACE_OP(ResourceApplyAdagrad)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad update of resource variables.");

MILLRACE_OP(SparseApplyAdagrad)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad update.");

MILLRACE_OP(ResourceSparseApplyAdagrad)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad update of resource variables.");

MILLRACE_OP(ApplyAdagradV2)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad (with epsilon) update.");

MILLRACE_OP(ResourceApplyAdagradV2)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad (with epsilon) update of resource variables.");

MILLRACE_OP(SparseApplyAdagradV2)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad (with epsilon) update.");

MILLRACE_OP(ResourceSparseApplyAdagradV2)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad (with epsilon) update of resource variables.");

MILLRACE_OP(ApplyProximalAdagrad)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Proximal Adagrad (L1 and L2) update.");

MILLRACE_OP(ResourceApplyProximalAdagrad)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Proximal Adagrad (L1 and L2) update of resource variables.");

MILLRACE_OP(SparseApplyProximalAdagrad)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
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
    .Summary("Sparse proximal Adagrad (L1 and L2) update.");

MILLRACE_OP(ResourceSparseApplyProximalAdagrad)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
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
    .Summary("Sparse proximal Adagrad (L1 and L2) update of resource variables.");

MILLRACE_KERNEL(ApplyAdagrad, kCpu, OptimizerKernelOf<Adagrad>);
MILLRACE_KERNEL(ResourceApplyAdagrad, kCpu, OptimizerKernelOf<Adagrad>);
MILLRACE_KERNEL(SparseApplyAdagrad, kCpu, OptimizerKernelOf<Adagrad>);
MILLRACE_KERNEL(ResourceSparseApplyAdagrad, kCpu, OptimizerKernelOf<Adagrad>);
MILLRACE_KERNEL(ApplyAdagradV2, kCpu, OptimizerKernelOf<AdagradV2>);
MILLRACE_KERNEL(ResourceApplyAdagradV2, kCpu, OptimizerKernelOf<AdagradV2>);
MILLRACE_KERNEL(SparseApplyAdagradV2, kCpu, OptimizerKernelOf<AdagradV2>);
MILLRACE_KERNEL(ResourceSparseApplyAdagradV2, kCpu, OptimizerKernelOf<AdagradV2>);
MILLRACE_KERNEL(ApplyProximalAdagrad, kCpu, OptimizerKernelOf<ProximalAdagrad>);
MILLRACE_KERNEL(ResourceApplyProximalAdagrad, kCpu, OptimizerKernelOf<ProximalAdagrad>);
MILLRACE_KERNEL(SparseApplyProximalAdagrad, kCpu, OptimizerKernelOf<ProximalAdagrad>);
MILLRACE_KERNEL(ResourceSparseApplyProximalAdagrad, kCpu, OptimizerKernelOf<ProximalAdagrad>);

}  // namespace
}  // namespace millrace
