// _CopyToDevice: moves a tensor between a device's memory and the host's. Placement inserts it where an
// edge crosses devices, so that other kernels never look at memory of another device.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Runs on the device whose memory is not the host's, in the order of its stream: into it, or, with
// to_host, out of it. Between two such devices there are two of these nodes.
class CopyToDeviceKernel : public AsyncKernel {
 public:
  explicit CopyToDeviceKernel(KernelInit& init) { init.Attr("to_host", &to_host_); }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    if (to_host_) {
      ctx.device()->CopyToHost(ctx.input(0), ctx.mutable_output(0), std::move(done));
    } else {
      ctx.device()->CopyFromHost(ctx.input(0), ctx.mutable_output(0), std::move(done));
    }
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
