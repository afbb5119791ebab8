// _FusedElementwise: a tree of element-wise ops, created by the pass elementwise_fusion.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/fused/fused_program.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class FusedElementwiseKernel : public Kernel {
 public:
  explicit FusedElementwiseKernel(KernelInit& init) {
    std::string body;
    init.Attr("body", &body);
    init.Attr("space_input", &space_input_);
    if (space_input_ < 0 || space_input_ >= init.node().num_inputs()) {
      init.Fail(InvalidArgument("space_input is not the number of an input: ", space_input_));
    }
    if (init.status().ok())
      init.Fail(program_.Init(body, init.node().num_inputs(), static_cast<int>(space_input_), init.device()));
  }

  Status Compute(KernelContext& ctx) override { return program_.Run(ctx, static_cast<int>(space_input_)); }

 private:
  FusedProgram program_;
  int64_t space_input_ = 0;
};

MILLRACE_OP(_FusedElementwise)
    .Input("inputs: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 1")
    .Attr("Tout: type")
    .Attr("body: string")
    .Attr("space_input: int = 0")
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Summary("A fused graph of element-wise ops, evaluated block by block.");

MILLRACE_KERNEL(_FusedElementwise, kCpu, FusedElementwiseKernel);

}  // namespace
}  // namespace millrace
