// _CopyToDevice: moves a tensor between a device's memory and the host's. Placement inserts it where an
// edge crosses devices, so that other kernels never look at memory of another device.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {
namespace {

// Runs on the device whose memory is not the host's, in the order of its stream: into it, or, with
// to_host, out of it. Between two such devices there are two of these nodes.
class CopyToDeviceKernel : public AsyncKernel {
 public:
  explicit CopyToDeviceKernel(KernelInit& init) { init.Attr("to_host", &to_host_); }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    if (!to_host_) return ctx.device()->CopyFromHost(ctx.input(0), ctx.mutable_output(0), std::move(done));
    // Everything that the device has to do before is waited for here.
    WaitRegistry* const waits = ctx.step().waits;
    const uint64_t wait =
        waits == nullptr ? 0
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
    .Input("input: T").Output("output: T").Attr("T: type").Attr("to_host: bool = false")
    .Shape(UnchangedShape).NotDifferentiable();
MILLRACE_KERNEL(_CopyToDevice, kCpu, CopyToDeviceKernel);
MILLRACE_KERNEL(_CopyToDevice, kCuda, CopyToDeviceKernel);

}  // namespace
}  // namespace millrace
