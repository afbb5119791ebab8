// Timestamp: the time of day while the graph runs.
#include "millrace/base/clock.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class TimestampKernel : public Kernel {
 public:
  explicit TimestampKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, Tensor::Scalar<double>(absl::ToDoubleSeconds(WallClock::Real()->Now() - absl::UnixEpoch())));
    return absl::OkStatus();
  }
};

MILLRACE_OP(Timestamp)
    .Output("ts: double")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Seconds since the Unix epoch.");
MILLRACE_KERNEL(Timestamp, kCpu, TimestampKernel);

}  // namespace
}  // namespace millrace
