// ToBool.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

// A scalar is true unless it is 0 or ""; any other tensor when it has elements.
class ToBoolKernel : public Kernel {
 public:
  explicit ToBoolKernel(KernelInit& init) {
    const DType type = init.input_type(0);
    if (type != DType::kString && !DispatchType(PlainTypes{}, type, [](auto) {})) FailDType(init, type);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    bool result = x.num_elements() > 0;
    if (x.rank() == 0) {
      if (x.dtype() == DType::kString) result = !x.scalar<std::string>().empty();
      DispatchType(PlainTypes{}, x.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        result = x.scalar<T>() != T(0);
      });
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    out->scalar<bool>() = result;
    return absl::OkStatus();
  }
};

MILLRACE_OP(ToBool)
    .Input("input: T").Output("output: bool").Attr("T: type")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Whether a scalar is not 0, or a tensor has elements.");

MILLRACE_KERNEL(ToBool, kCpu, ToBoolKernel);

}  // namespace
}  // namespace millrace
