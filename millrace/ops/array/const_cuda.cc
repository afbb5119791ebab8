// Const on a GPU, copied to the device once.
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class CudaConstKernel : public Kernel {
 public:
  explicit CudaConstKernel(KernelInit& init) {
    init.Attr("value", &value_);
    if (!init.status().ok()) return;
    if (value_.dtype() != init.output_type(0)) {
      init.Fail(InvalidArgument("Const of type ", init.output_type(0), " has a value of type ", value_.dtype()));
      return;
    }
    if (!IsPlain(value_.dtype())) return;
    StatusOr<Tensor> here = CudaDevice::GpuOf(init.device())->CopyIn(value_);
    if (here.ok()) {
      value_ = *std::move(here);
    } else {
      init.Fail(here.status());
    }
  }
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, value_);
    return absl::OkStatus();
  }

 private:
  Tensor value_;
};

MILLRACE_KERNEL(Const, kCuda, CudaConstKernel);

}  // namespace
}  // namespace millrace
