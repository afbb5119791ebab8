// Pools and their gradients on a GPU.
#include <limits>

#include "absl/strings/match.h"
#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/nn/cuda/pool_program.h"

namespace millrace {
namespace {

class CudaPoolKernel : public Kernel {
 protected:
  // `main` is the kernel that makes the result.
  CudaPoolKernel(KernelInit& init, const char* main)
      : window_(init),
        ordinal_(CudaDevice::GpuOf(init.device())->ordinal()),
        program_(
            PoolProgram{.dtype = init.output_type(0), .averages = absl::StartsWith(init.node().type(), "Avg")}.Text()) {
    StatusOr<cudaKernel_t> kernel = Find(main);
    if (kernel.ok()) {
      kernel_ = *kernel;
    } else {
      init.Fail(kernel.status());
    }
  }
  StatusOr<cudaKernel_t> Find(const char* name) const { return CompiledKernel(program_, name, ordinal_); }

  static Status Run(KernelContext& ctx, const CudaCall& call, cudaKernel_t kernel, int64_t n, PoolGeometry g,
                    std::vector<void*> arguments) {
    if (n == 0) return absl::OkStatus();
    arguments.insert(arguments.begin(), {&n, &g});
    return call.LaunchOverElements(ctx.node().type(), kernel, n, arguments);
  }

  const PoolWindow window_;
  cudaKernel_t kernel_ = nullptr;

 private:
  const int ordinal_;
  const std::string program_;
};

template <bool kAverages>
class CudaPoolForward : public CudaPoolKernel {
 public:
  explicit CudaPoolForward(KernelInit& init)
      : CudaPoolKernel(init, kAverages ? PoolProgram::kAvg : PoolProgram::kMax) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, window_.Get(ctx, 1));
    Shape shape;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(attrs, ctx.input(0).shape(), &shape));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* x, call.Input(0));
    MR_ASSIGN_OR_RETURN(Tensor * y, call.Output(0, shape));
    void* to = y->raw_data();
    return Run(ctx, call, kernel_, y->num_elements(), g, {&x, &to});
  }
};

class CudaAvgPoolGrad : public CudaPoolKernel {
 public:
  explicit CudaAvgPoolGrad(KernelInit& init) : CudaPoolKernel(init, PoolProgram::kAvgBack) {}
  Status Compute(KernelContext& ctx) override {
    Shape shape;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, AvgPoolGradGeometry(ctx, window_, &shape));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* dy, call.Input(1));
    MR_ASSIGN_OR_RETURN(Tensor * dx, call.Output(0, shape));
    void* to = dx->raw_data();
    return Run(ctx, call, kernel_, dx->num_elements(), g, {&dy, &to});
  }
};

template <bool kSecond>
class CudaMaxPoolGrad : public CudaPoolKernel {
 public:
  explicit CudaMaxPoolGrad(KernelInit& init)
      : CudaPoolKernel(init, kSecond ? PoolProgram::kMaxBackBack : PoolProgram::kMaxBack) {
    if (init.input_type(0) != init.output_type(0)) FailDType(init, init.input_type(0));
    if (kSecond) return;
    StatusOr<cudaKernel_t> kernel = Find(PoolProgram::kMaxPixels);
    if (kernel.ok()) {
      find_pixels_ = *kernel;
    } else {
      init.Fail(kernel.status());
    }
  }
  Status Compute(KernelContext& ctx) override {
    Shape shape;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, MaxPoolGradGeometry(ctx, window_, kSecond, &shape));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* x, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* grad, call.Input(2));
    MR_ASSIGN_OR_RETURN(Tensor * result, call.Output(0, shape));
    void* to = result->raw_data();
    const int64_t n = result->num_elements();
    if (kSecond) return Run(ctx, call, kernel_, n, g, {&x, &grad, &to});
    MR_ASSIGN_OR_RETURN(const Tensor pixels,
                        Tensor::Make(DType::kInt32, ctx.input(2).shape(), call.gpu()->allocator()));
    void* found = pixels.raw_data();
    MR_RETURN_IF_ERROR(Run(ctx, call, find_pixels_, pixels.num_elements(), g, {&x, &found}));
    return Run(ctx, call, kernel_, n, g, {&found, &grad, &to});
  }

 private:
  cudaKernel_t find_pixels_ = nullptr;
};

std::vector<DType> VolumePoolTypes() { return {DType::kHalf, DType::kBFloat16, DType::kFloat}; }

MILLRACE_KERNEL_OF(MaxPool, kCuda, ({"T", CudaReals()}), CudaPoolForward<false>);
MILLRACE_KERNEL_OF(MaxPoolV2, kCuda, ({"T", CudaReals()}), CudaPoolForward<false>);
MILLRACE_KERNEL_OF(MaxPool3D, kCuda, ({"T", VolumePoolTypes()}), CudaPoolForward<false>);
MILLRACE_KERNEL_OF(MaxPoolGrad, kCuda, ({"T", CudaReals()}), CudaMaxPoolGrad<false>);
MILLRACE_KERNEL_OF(MaxPoolGradV2, kCuda, ({"T", CudaReals()}), CudaMaxPoolGrad<false>);
MILLRACE_KERNEL_OF(MaxPool3DGrad, kCuda, ({"T", VolumePoolTypes(), "TInput", VolumePoolTypes()}),
                   CudaMaxPoolGrad<false>);
MILLRACE_KERNEL_OF(MaxPoolGradGrad, kCuda, ({"T", CudaReals()}), CudaMaxPoolGrad<true>);
MILLRACE_KERNEL_OF(MaxPoolGradGradV2, kCuda, ({"T", CudaReals()}), CudaMaxPoolGrad<true>);
MILLRACE_KERNEL_OF(MaxPool3DGradGrad, kCuda, ({"T", VolumePoolTypes()}), CudaMaxPoolGrad<true>);
MILLRACE_KERNEL_OF(AvgPool, kCuda, ({"T", CudaRealFloats()}), CudaPoolForward<true>);
MILLRACE_KERNEL_OF(AvgPool3D, kCuda, ({"T", CudaRealFloats()}), CudaPoolForward<true>);
MILLRACE_KERNEL_OF(AvgPoolGrad, kCuda, ({"T", CudaRealFloats()}), CudaAvgPoolGrad);
MILLRACE_KERNEL_OF(AvgPool3DGrad, kCuda, ({"T", CudaRealFloats()}), CudaAvgPoolGrad);

}  // namespace
}  // namespace millrace
