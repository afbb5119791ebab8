// Generic kernels of activations y = f(x) and of their gradients.
#pragma once

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

// `Op` is constructed from KernelInit& and has a template operator()(const C* x, C* y, int64_t n) const, called with C
// = ComputeType<T>; y may alias x.
template <typename Op, typename TypeList>
class ActivationKernel : public Kernel {
 public:
  explicit ActivationKernel(KernelInit& init) : op_(init) {
    if (!DispatchType(TypeList{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0}, 0, x.shape()));
    DispatchType(TypeList{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      MapElements<T>(ctx, x.data<T>(), y->data<T>(), y->num_elements(),
                     [this](const auto* in, auto* out, int64_t n) { op_(in, out, n); });
    });
    return absl::OkStatus();
  }

 private:
  const Op op_;
};

// Inputs: the gradient of y, and x or y, whichever `Op` needs: operator()(const C* dy, const C* x, C* dx, n).
template <typename Op, typename TypeList>
class ActivationGradKernel : public Kernel {
 public:
  explicit ActivationGradKernel(KernelInit& init) : op_(init) {
    if (!DispatchType(TypeList{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& dy = ctx.input(0);
    const Tensor& x = ctx.input(1);
    if (dy.shape() != x.shape()) {
      return InvalidArgument("the gradient has shape ", dy.shape().ToString(), " but the activation has shape ",
                             x.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.ForwardOrAllocateOutput({0, 1}, 0, dy.shape()));
    DispatchType(TypeList{}, dy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      MapElements<T>(ctx, dy.data<T>(), x.data<T>(), dx->data<T>(), dx->num_elements(),
                     [this](const auto* g, const auto* in, auto* out, int64_t n) { op_(g, in, out, n); });
    });
    return absl::OkStatus();
  }

 private:
  const Op op_;
};

// Output 0 has the shape of both inputs, which must agree.
inline Status MergedShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape merged, c.input(0).MergeWith(c.input(1)));
  c.set_output(0, merged);
  return absl::OkStatus();
}

}  // namespace millrace
