// ArgMax, ArgMin, Cumsum and Cumprod on a GPU.
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/lines_program.h"
#include "millrace/ops/math/line_dims.h"

namespace millrace {
namespace {

class CudaArgKernel : public Kernel {
 public:
  explicit CudaArgKernel(KernelInit& init)
      : kernel_(CompileFor(init,
                           LinesProgram::Best(init.node().is_type("ArgMax") ? "ArgMaxBeforeFn" : "ArgMinBeforeFn",
                                              init.input_type(0), init.output_type(0)),
                           LinesProgram::kBest)) {}

  Status Compute(KernelContext& ctx) override {
    Shape shape;
    MR_ASSIGN_OR_RETURN(LineDims d, LinesOfArg(ctx, &shape));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* from, call.Input(0));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    if (out->num_elements() == 0) return absl::OkStatus();
    void* to = out->raw_data();
    int64_t lines = d.lines();
    constexpr int64_t kLongLine = 1024;
    const bool alone = d.inner == 1 && d.n > kLongLine;
    const int64_t per_block = d.inner > 1 ? 32 : alone ? 1 : 8;
    const dim3 threads = alone ? dim3(LinesProgram::kLineThreads) : dim3(32, 8);
    std::vector<void*> arguments = {&lines, &d.n, &d.inner, &from, &to};
    return call.Launch(ctx.node().type(), kernel_, dim3(static_cast<unsigned>((lines + per_block - 1) / per_block)),
                       threads, arguments);
  }

 private:
  const cudaKernel_t kernel_;
};

class CudaScanKernel : public Kernel {
 public:
  explicit CudaScanKernel(KernelInit& init) {
    bool flag = false;
    init.Attr("exclusive", &flag);
    exclusive_ = flag ? 1 : 0;
    init.Attr("reverse", &flag);
    reverse_ = flag ? 1 : 0;
    const bool sum = init.node().is_type("Cumsum");
    const std::string text = LinesProgram::Scan(sum ? "AddFn" : "MulFn", sum ? "Acc(0)" : "Acc(1)", init.input_type(0));
    short_ = CompileFor(init, text, LinesProgram::kScanShort);
    long_ = CompileFor(init, text, LinesProgram::kScanLong);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(LineDims d, LinesOfScan(ctx));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* from, call.Input(0));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, ctx.input(0).shape()));
    if (out->num_elements() == 0) return absl::OkStatus();
    void* to = out->raw_data();
    int64_t lines = d.lines();
    int exclusive = exclusive_, reverse = reverse_;
    std::vector<void*> arguments = {&lines, &d.n, &d.inner, &exclusive, &reverse, &from, &to};
    // The choice follows from the shape, and so do the bits of the result.
    constexpr int64_t kShortLine = 64, kMostBlocks = 132 * 16;
    if (d.n <= kShortLine) return call.LaunchOverElements(ctx.node().type(), short_, lines, arguments);
    return call.Launch(ctx.node().type(), long_, dim3(static_cast<unsigned>(std::min(lines, kMostBlocks))),
                       dim3(LinesProgram::kLineThreads), arguments);
  }

 private:
  int exclusive_ = 0, reverse_ = 0;
  cudaKernel_t short_ = nullptr, long_ = nullptr;
};

std::vector<DType> ArgTypes() { return With(CudaReals(), {DType::kInt32, DType::kBool}); }
std::vector<DType> ArgOutputs() { return {DType::kInt16, DType::kUInt16, DType::kInt32, DType::kInt64}; }

MILLRACE_KERNEL_OF(ArgMax, kCuda, ({"T", ArgTypes(), "output_type", ArgOutputs()}), CudaArgKernel);
MILLRACE_KERNEL_OF(ArgMin, kCuda, ({"T", ArgTypes(), "output_type", ArgOutputs()}), CudaArgKernel);
MILLRACE_KERNEL_OF(Cumsum, kCuda, ({"T", With(CudaNumbers(), {DType::kInt32})}), CudaScanKernel);
MILLRACE_KERNEL_OF(Cumprod, kCuda, ({"T", With(CudaNumbers(), {DType::kInt32})}), CudaScanKernel);

}  // namespace
}  // namespace millrace
