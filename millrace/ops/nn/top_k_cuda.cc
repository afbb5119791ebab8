// TopK, TopKV2, InTopK and InTopKV2 on a GPU.
#include <limits>
#include <utility>

#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/lines_program.h"
#include "millrace/ops/kernels/cuda/rows_program.h"
#include "millrace/ops/nn/top_k_input.h"

namespace millrace {
namespace {

// Sorts the places of each row.
class CudaTopKKernel : public Kernel {
 public:
  explicit CudaTopKKernel(KernelInit& init) : k_(init, 1) {
    const std::string text = LinesProgram::TopK(init.input_type(0), init.output_type(1));
    places_ = CompileFor(init, text, LinesProgram::kPlaces);
    pieces_ = CompileFor(init, text, LinesProgram::kSortPieces);
    merge_ = CompileFor(init, text, LinesProgram::kMergeRuns);
    take_ = CompileFor(init, text, LinesProgram::kTake);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, k_.TopK(ctx));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* from, call.Input(0));
    MR_ASSIGN_OR_RETURN(Tensor * values, call.Output(0, shape));
    MR_ASSIGN_OR_RETURN(Tensor * indices, call.Output(1, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    int64_t width = x.dim(x.rank() - 1), rows = x.num_elements() / width, k = shape.dim(shape.rank() - 1);
    if (width > std::numeric_limits<int>::max()) return Unimplemented("TopK of rows of ", width, " elements on a GPU");
    Tensor places, other;
    MR_ASSIGN_OR_RETURN(places, Tensor::Make(DType::kInt32, Shape({rows, width}), call.gpu()->allocator()));
    void* order = places.raw_data();
    std::vector<void*> arguments = {&rows, &width, &order};
    MR_RETURN_IF_ERROR(call.LaunchOverElements("TopK", places_, rows * width, arguments));
    constexpr int64_t kBlock = RowsProgram::kSortedByBlock;
    const int64_t blocks = rows * ((width + kBlock - 1) / kBlock);
    if (blocks > std::numeric_limits<int>::max()) return Unimplemented("TopK of ", x.shape().ToString(), " on a GPU");
    arguments = {&rows, &width, &from, &order};
    MR_RETURN_IF_ERROR(call.Launch("TopK", pieces_, dim3(static_cast<unsigned>(blocks)), dim3(kBlock), arguments));
    if (width > kBlock) {
      MR_ASSIGN_OR_RETURN(other, Tensor::Make(DType::kInt32, places.shape(), call.gpu()->allocator()));
    }
    for (int64_t run = kBlock; run < width; run *= 2) {
      void* merged = other.raw_data();
      arguments = {&rows, &width, &run, &from, &order, &merged};
      MR_RETURN_IF_ERROR(call.LaunchOverElements("TopK", merge_, rows * width, arguments));
      std::swap(places, other);
      order = merged;
    }
    void *to_values = values->raw_data(), *to_indices = indices->raw_data();
    arguments = {&rows, &width, &k, &order, &from, &to_values, &to_indices};
    return call.LaunchOverElements("TopK", take_, rows * k, arguments);
  }

 private:
  const TopKInput k_;
  cudaKernel_t places_ = nullptr, pieces_ = nullptr, merge_ = nullptr, take_ = nullptr;
};

class CudaInTopKKernel : public Kernel {
 public:
  explicit CudaInTopKKernel(KernelInit& init)
      : k_(init, 2), kernel_(CompileFor(init, LinesProgram::InTopK(init.input_type(1)), LinesProgram::kInTopK)) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(int64_t k, k_.InTopK(ctx));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* predictions, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* targets, call.Input(1));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, ctx.input(1).shape()));
    int64_t rows = out->num_elements(), width = ctx.input(0).dim(1);
    if (rows == 0) return absl::OkStatus();
    void* to = out->raw_data();
    constexpr int64_t kLongRow = 1024;
    const dim3 threads = width > kLongRow ? dim3(LinesProgram::kLineThreads) : dim3(32, 8);
    std::vector<void*> arguments = {&rows, &width, &k, &predictions, &targets, &to};
    return call.Launch(ctx.node().type(), kernel_, dim3(static_cast<unsigned>((rows + threads.y - 1) / threads.y)),
                       threads, arguments);
  }

 private:
  const TopKInput k_;
  const cudaKernel_t kernel_;
};

std::vector<DType> TopKTypes() { return With(CudaReals(), {DType::kInt32}); }

MILLRACE_KERNEL_OF(TopK, kCuda, ({"T", TopKTypes()}), CudaTopKKernel);
MILLRACE_KERNEL_OF(TopKV2, kCuda, ({"T", TopKTypes()}), CudaTopKKernel);
MILLRACE_KERNEL(InTopK, kCuda, CudaInTopKKernel);
MILLRACE_KERNEL(InTopKV2, kCuda, CudaInTopKKernel);

}  // namespace
}  // namespace millrace
