// StringLength: in bytes or characters.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/ops/string/utf8.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class StringLengthKernel : public Kernel {
 public:
  explicit StringLengthKernel(KernelInit& init) {
    std::string unit;
    init.Attr("unit", &unit);
    characters_ = unit == "UTF8_CHAR";
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    const std::string* from = input.data<std::string>();
    int32_t* to = out->data<int32_t>();
    for (int64_t i = 0, n = input.num_elements(); i < n; ++i) {
      to[i] = static_cast<int32_t>(characters_ ? Utf8Length(from[i]) : static_cast<int64_t>(from[i].size()));
    }
    return absl::OkStatus();
  }

 private:
  bool characters_ = false;
};

MILLRACE_OP(StringLength)
    .Input("input: string")
    .Output("output: int32")
    .Attr("unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("The length of each string in bytes or characters.");
MILLRACE_KERNEL(StringLength, kCpu, StringLengthKernel);

}  // namespace
}  // namespace millrace
