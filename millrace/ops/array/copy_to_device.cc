// _CopyToDevice: copies a tensor between device memory and host memory. Placement inserts it where an edge crosses
// devices, so that kernels never access another device's memory.
#include "millrace/device/memory_holders.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {
namespace {

// Runs on the device whose memory is not the host's, in stream order: copies to it or, with to_host, from it. A copy
// between two such devices takes two of these nodes.
class CopyToDeviceKernel : public AsyncKernel {
 public:
  explicit CopyToDeviceKernel(KernelInit& init) { init.Attr("to_host", &to_host_); }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    const HolderName holder("node", ctx.node().name());
    if (!to_host_) return ctx.device()->CopyFromHost(ctx.input(0), ctx.mutable_output(0), std::move(done));
    // This waits for all earlier work on the device.
    WaitRegistry* const waits = ctx.step().waits;
    const uint64_t wait = waits == nullptr
                              ? 0
                              : waits->Begin(ctx.node().name(), absl::StrCat("the tensor from ", ctx.device()->name()),
                                             ctx.step().step_id);
    ctx.device()->CopyToHost(ctx.input(0), ctx.mutable_output(0),
                             [waits, wait, done = std::move(done)](Status status) mutable {
                               if (waits != nullptr) waits->End(wait);
                               done(std::move(status));
                             });
  }

 private:
  bool to_host_ = false;
};

MILLRACE_OP(_CopyToDevice)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("to_host: bool = false")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Copies a tensor between device and host memory.");
MILLRACE_KERNEL(_CopyToDevice, kCpu, CopyToDeviceKernel);
MILLRACE_KERNEL(_CopyToDevice, kCuda, CopyToDeviceKernel);

}  // namespace
}  // namespace millrace
