// L2Loss: half the sum of squares.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status L2LossGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.input(0), c.grad()));
  return absl::OkStatus();
}

MILLRACE_OP(L2Loss)
    .Summary("sum(t * t) / 2.")
    .Input("t: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(ScalarShape)
    .Gradient(L2LossGradient);

// Eight running sums over a block: a fixed order that vectorises.
template <typename T>
ComputeType<T> SumOfSquares(const T* x, int64_t n) {
  using C = ComputeType<T>;
  C part[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int j = 0; j < 8; ++j) {
      const C v = static_cast<C>(x[i + j]);
      part[j] += v * v;
    }
  }
  for (int j = 0; i < n; ++i, ++j) {
    const C v = static_cast<C>(x[i]);
    part[j] += v * v;
  }
  return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

class L2LossKernel : public Kernel {
 public:
  explicit L2LossKernel(KernelInit& init) {
    if (!DispatchType(FloatTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor * loss, ctx.AllocateOutput(0, Shape()));
    Status status;
    DispatchType(FloatTypes{}, ctx.input(0).dtype(),
                 [&](auto tag) { status = Sum<typename decltype(tag)::type>(ctx, loss); });
    return status;
  }

 private:
  template <typename T>
  static Status Sum(KernelContext& ctx, Tensor* loss) {
    using C = ComputeType<T>;
    const T* x = ctx.input(0).data<T>();
    const int64_t n = ctx.input(0).num_elements();
    if (n <= kElementGrain) {
      loss->scalar<T>() = static_cast<T>(SumOfSquares(x, n) / 2);
      return absl::OkStatus();
    }
    const int64_t blocks = (n + kElementGrain - 1) / kElementGrain;
    MR_ASSIGN_OR_RETURN(Tensor parts, ctx.AllocateTemp(DTypeOf<C>(), Shape({blocks})));
    C* part = parts.data<C>();
    ctx.ParallelFor(n, kElementGrain, [&](int64_t begin, int64_t end) {
      part[begin / kElementGrain] = SumOfSquares(x + begin, end - begin);
    });
    C total(0);
    for (int64_t i = 0; i < blocks; ++i) total += part[i];
    loss->scalar<T>() = static_cast<T>(total / 2);
    return absl::OkStatus();
  }
};

MILLRACE_KERNEL(L2Loss, kCpu, L2LossKernel);

}  // namespace
}  // namespace millrace
