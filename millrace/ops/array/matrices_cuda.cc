// OneHot and MatrixBandPart on a GPU.
#include "millrace/ops/array/matrix_dims.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/lines_program.h"

namespace millrace {
namespace {

int BytesOf(DType dtype) { return static_cast<int>(SizeOf(dtype)); }

class CudaOneHotKernel : public Kernel {
 public:
  explicit CudaOneHotKernel(KernelInit& init)
      : kernel_(CompileFor(init, LinesProgram::OneHot(BytesOf(init.output_type(0)), init.input_type(0)),
                           LinesProgram::kOneHot)) {
    init.Attr("axis", &axis_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(OneHotDims d, DimsOfOneHot(ctx, axis_));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, d.shape));
    if (out->num_elements() == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const void* indices, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* on, call.Input(2));
    MR_ASSIGN_OR_RETURN(const void* off, call.Input(3));
    void* to = out->raw_data();
    std::vector<void*> arguments = {&d.outer, &d.depth, &d.inner, &indices, &on, &off, &to};
    return call.LaunchOverRows("OneHot", kernel_, d.outer * d.depth, d.inner, arguments);
  }

 private:
  const cudaKernel_t kernel_;
  int64_t axis_ = -1;
};

class CudaMatrixBandPartKernel : public Kernel {
 public:
  explicit CudaMatrixBandPartKernel(KernelInit& init)
      : kernel_(CompileFor(init, LinesProgram::Band(BytesOf(init.output_type(0))), LinesProgram::kBand)) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(BandDims d, DimsOfBand(ctx));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* from, call.Input(0));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, ctx.input(0).shape()));
    if (out->num_elements() == 0) return absl::OkStatus();
    void* to = out->raw_data();
    std::vector<void*> arguments = {&d.matrices, &d.rows, &d.columns, &d.lower, &d.upper, &from, &to};
    return call.LaunchOverRows("MatrixBandPart", kernel_, d.matrices * d.rows, d.columns, arguments);
  }

 private:
  const cudaKernel_t kernel_;
};

MILLRACE_KERNEL_OF(OneHot, kCuda, ({"T", CudaMoved()}), CudaOneHotKernel);
MILLRACE_KERNEL_OF(MatrixBandPart, kCuda, ({"T", CudaMoved()}), CudaMatrixBandPartKernel);

}  // namespace
}  // namespace millrace
