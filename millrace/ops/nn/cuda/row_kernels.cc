// Softmax, LogSoftmax and the cross entropies on a GPU.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/nn/cuda/row_program.h"

namespace millrace {
namespace {

class CudaRowKernel : public Kernel {
 public:
  explicit CudaRowKernel(KernelInit& init) {
    RowProgram program{.op = init.node().type(), .dtype = init.input_type(0)};
    if (init.node().is_type("SparseSoftmaxCrossEntropyWithLogits")) program.classes = init.input_type(1);
    StatusOr<cudaKernel_t> kernel =
        CompiledKernel(program.Text(), RowProgram::kKernel, CudaDevice::GpuOf(init.device())->ordinal());
    if (kernel.ok()) {
      kernel_ = *kernel;
    } else {
      init.Fail(kernel.status());
    }
  }

 protected:
  // `arguments` are what follows the number of rows and their width.
  Status Launch(KernelContext& ctx, const CudaCall& call, int64_t rows, int64_t width,
                const std::vector<void*>& arguments) const {
    if (rows == 0 || width == 0) return absl::OkStatus();
    constexpr int64_t kLongRow = 1024;
    const dim3 threads = width > kLongRow ? dim3(256) : dim3(32, 8);
    const dim3 blocks(static_cast<unsigned>((rows + threads.y - 1) / threads.y));
    std::vector<void*> all = {&rows, &width};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return call.Launch(ctx.node().type(), kernel_, blocks, threads, all);
  }

 private:
  cudaKernel_t kernel_ = nullptr;
};

class CudaSoftmaxKernel : public CudaRowKernel {
 public:
  using CudaRowKernel::CudaRowKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (x.rank() < 1) {
      return InvalidArgument("logits must have at least one dimension, but have shape ", x.shape().ToString());
    }
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* from, call.Input(0));
    MR_ASSIGN_OR_RETURN(Tensor * y, call.Output(0, x.shape()));
    void* to = y->raw_data();
    const int64_t width = x.dim(x.rank() - 1);
    return Launch(ctx, call, width == 0 ? 0 : x.num_elements() / width, width, {&from, &to});
  }
};

class CudaCrossEntropyKernel : public CudaRowKernel {
 public:
  using CudaRowKernel::CudaRowKernel;
  Status Compute(KernelContext& ctx) override {
    const Shape &features = ctx.input(0).shape(), &labels = ctx.input(1).shape();
    Shape shape = features;
    if (shape != labels) {
      StatusOr<PartialShape> both = BroadcastShapes(features, labels);
      if (!both.ok()) return Misfit(features, labels);
      shape = both->AsShape();
    }
    if (shape.rank() != 2) return Misfit(features, labels);
    if (shape.dim(0) > 0 && shape.dim(1) == 0) {
      return InvalidArgument("features of shape ", features.ToString(), " have no classes");
    }
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* x, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* wanted, call.Input(1));
    MR_ASSIGN_OR_RETURN(Tensor * loss, call.Output(0, Shape({shape.dim(0)})));
    MR_ASSIGN_OR_RETURN(Tensor * backprop, call.Output(1, shape));
    RowSteps steps = {RowStep(features), ColumnStep(features), RowStep(labels), ColumnStep(labels)};
    void *to_loss = loss->raw_data(), *to_backprop = backprop->raw_data();
    return Launch(ctx, call, shape.dim(0), shape.dim(1), {&steps, &x, &wanted, &to_loss, &to_backprop});
  }

 private:
  static Status Misfit(const Shape& features, const Shape& labels) {
    return InvalidArgument("features and labels must be matrices of one shape, but have shapes ", features.ToString(),
                           " and ", labels.ToString());
  }
  // Missing leading dimensions count as 1, and those of 1 are repeated.
  static int64_t ColumnStep(const Shape& s) { return s.rank() >= 1 && s.dim(s.rank() - 1) != 1 ? 1 : 0; }
  static int64_t RowStep(const Shape& s) { return s.rank() >= 2 && s.dim(0) != 1 ? s.dim(1) : 0; }
};

class CudaSparseCrossEntropyKernel : public CudaRowKernel {
 public:
  using CudaRowKernel::CudaRowKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &features = ctx.input(0), &labels = ctx.input(1);
    if (features.rank() != 2 || labels.rank() != 1 || features.dim(0) != labels.dim(0)) {
      return InvalidArgument("features must be a matrix and labels a vector of as many rows, but have shapes ",
                             features.shape().ToString(), " and ", labels.shape().ToString());
    }
    const int64_t rows = features.dim(0), width = features.dim(1);
    if (rows > 0 && width == 0) {
      return InvalidArgument("features of shape ", features.shape().ToString(), " have no classes");
    }
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* x, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* classes, call.Input(1));
    MR_ASSIGN_OR_RETURN(Tensor * loss, call.Output(0, Shape({rows})));
    MR_ASSIGN_OR_RETURN(Tensor * backprop, call.Output(1, features.shape()));
    void *to_loss = loss->raw_data(), *to_backprop = backprop->raw_data();
    return Launch(ctx, call, rows, width, {&x, &classes, &to_loss, &to_backprop});
  }
};

MILLRACE_KERNEL_OF(Softmax, kCuda, ({"T", CudaRealFloats()}), CudaSoftmaxKernel);
MILLRACE_KERNEL_OF(LogSoftmax, kCuda, ({"T", CudaRealFloats()}), CudaSoftmaxKernel);
MILLRACE_KERNEL_OF(SoftmaxCrossEntropyWithLogits, kCuda, ({"T", CudaRealFloats()}), CudaCrossEntropyKernel);
MILLRACE_KERNEL_OF(SparseSoftmaxCrossEntropyWithLogits, kCuda, ({"T", CudaRealFloats()}), CudaSparseCrossEntropyKernel);

}  // namespace
}  // namespace millrace
