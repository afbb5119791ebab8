// Assert and Abort.
#include "absl/strings/str_cat.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/control_flow/summarize.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class AssertKernel : public Kernel {
 public:
  explicit AssertKernel(KernelInit& init) { init.Attr("summarize", &summarize_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor& condition = ctx.input(0);
    if (condition.num_elements() != 1) {
      return InvalidArgument("condition must be a scalar, but it has shape ", condition.shape().ToString());
    }
    if (condition.scalar<bool>()) return absl::OkStatus();
    std::string message = "assertion failed:";
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      absl::StrAppend(&message, " [", SummarizeValues(ctx.input(i), summarize_), "]");
    }
    return absl::InvalidArgumentError(message);
  }

 private:
  int64_t summarize_ = 3;
};

// Fails the step. The process keeps running, whatever exit_without_error is, because it serves other clients too.
class AbortKernel : public Kernel {
 public:
  explicit AbortKernel(KernelInit& init) { init.Attr("error_msg", &message_); }

  Status Compute(KernelContext&) override { return Aborted(message_.empty() ? "the graph asked to abort" : message_); }

 private:
  std::string message_;
};

MILLRACE_OP(Assert)
    .Input("condition: bool")
    .Input("data: T")
    .Attr("T: list(type) >= 1")
    .Attr("summarize: int = 3")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("Fails the step, printing data, if condition is false.");

MILLRACE_OP(Abort)
    .Attr("error_msg: string = ''")
    .Attr("exit_without_error: bool = false")
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("Fails the step when it runs.");

MILLRACE_KERNEL(Assert, kCpu, AssertKernel);
MILLRACE_KERNEL(Abort, kCpu, AbortKernel);

}  // namespace
}  // namespace millrace
