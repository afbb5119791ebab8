// ApproximateEqual.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

class ApproximateEqualKernel : public Kernel {
 public:
  explicit ApproximateEqualKernel(KernelInit& init) {
    init.Attr("tolerance", &tolerance_);
    if (init.input_type(0) != DType::kFloat && init.input_type(0) != DType::kDouble) {
      FailDType(init, init.input_type(0));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& y = ctx.input(1);
    if (x.shape() != y.shape()) {
      return InvalidArgument("x and y must be of the same shape. x shape: ", x.shape().ToString(),
                             ". y shape: ", y.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * z, ctx.AllocateOutput(0, x.shape()));
    DispatchType(Types<float, double>{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T tolerance = static_cast<T>(tolerance_);
      const T *a = x.data<T>(), *b = y.data<T>();
      bool* out = z->data<bool>();
      ctx.ParallelFor(x.num_elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
        // Local pointers, because a bool store may alias anything.
        const T *const left = a, *const right = b;
        const T most = tolerance;
        bool* const to = out;
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) to[i] = std::fabs(left[i] - right[i]) < most;
      });
    });
    return absl::OkStatus();
  }

 private:
  float tolerance_ = 0;
};

Status SameShapes(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.input(0).MergeWith(c.input(1)));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(ApproximateEqual)
    .Input("x: T")
    .Input("y: T")
    .Output("z: bool")
    .Attr("T: numbertype")
    .Attr("tolerance: float = 9.999999747378752e-06")
    .Commutative()
    .Shape(SameShapes)
    .NotDifferentiable()
    .Summary("Where |x - y| < tolerance");

MILLRACE_KERNEL(ApproximateEqual, kCpu, ApproximateEqualKernel);

}  // namespace millrace
