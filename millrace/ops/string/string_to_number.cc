// StringToNumber: parses numbers.
#include <atomic>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/number_text.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using TargetTypes = Types<float, double, int32_t, int64_t, uint32_t, uint64_t>;

class StringToNumberKernel : public Kernel {
 public:
  explicit StringToNumberKernel(KernelInit& init) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const std::string* from = input.data<std::string>();
    const int64_t n = input.num_elements();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    // The first string that is not a number, whichever thread found it.
    std::atomic<int64_t> bad{n};
    DispatchType(TargetTypes(), out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = out->data<T>();
      ctx.ParallelFor(n, kStringGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          if (ParseNumber(from[i], &to[i])) continue;
          int64_t seen = bad.load();
          while (i < seen && !bad.compare_exchange_weak(seen, i)) {
          }
          return;
        }
      });
    });
    if (bad < n) {
      return InvalidArgument("StringToNumberOp could not correctly convert string: ", from[bad.load()], " (element ",
                             bad.load(), ", to ", out->dtype(), ")");
    }
    return absl::OkStatus();
  }
};

MILLRACE_OP(StringToNumber)
    .Input("string_tensor: string")
    .Output("output: out_type")
    .Attr("out_type: {float, double, int32, int64, uint32, uint64} = DT_FLOAT")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Parses strings as numbers.");
MILLRACE_KERNEL(StringToNumber, kCpu, StringToNumberKernel);

}  // namespace
}  // namespace millrace
