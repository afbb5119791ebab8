// Batch normalisation and its gradient on a GPU.
#include "millrace/ops/nn/batch_norm_kernels.h"

#include <map>

#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/nn/cuda/batch_norm_program.h"
#include "millrace/ops/nn/cuda/column_plan.h"

namespace millrace {
namespace {

class CudaBatchNormBase : public Kernel {
 protected:
  CudaBatchNormBase(KernelInit& init, std::initializer_list<const char*> kernels) : attrs_(init) {
    const std::string text = BatchNormProgram{.dtype = init.input_type(0)}.Text();
    for (const char* name : kernels) {
      StatusOr<cudaKernel_t> kernel = CompiledKernel(text, name, CudaDevice::GpuOf(init.device())->ordinal());
      if (kernel.ok()) {
        kernels_[name] = *kernel;
      } else {
        init.Fail(kernel.status());
      }
    }
  }

  // The plan of sums over all elements of each channel.
  static ColumnPlan SumsOf(const ChannelBlocks& v) {
    return ColumnPlan::Of(v.channels, v.per_channel(), /*by_columns=*/v.inner == 1);
  }
  Status OverColumns(const CudaCall& call, const char* name, ColumnPlan plan, std::vector<void*> arguments) const {
    arguments.insert(arguments.begin(), &plan.columns);
    return call.Launch(name, kernels_.at(name), dim3(plan.blocks[0], plan.blocks[1]),
                       dim3(plan.threads[0], plan.threads[1]), arguments);
  }
  Status OverElements(const CudaCall& call, const char* name, int64_t n, std::vector<void*> arguments) const {
    arguments.insert(arguments.begin(), &n);
    return call.LaunchOverElements(name, kernels_.at(name), n, arguments);
  }
  static StatusOr<Tensor> Scratch(const CudaCall& call, int64_t bytes) {
    return Tensor::Make(DType::kUInt8, Shape({bytes}), call.gpu()->allocator());
  }

  const BatchNormAttrs attrs_;

 private:
  std::map<std::string, cudaKernel_t> kernels_;
};

// Inputs: x, scale, offset, mean, variance.
class CudaBatchNormKernel : public CudaBatchNormBase {
 public:
  explicit CudaBatchNormKernel(KernelInit& init)
      : CudaBatchNormBase(init, {BatchNormProgram::kMoments, BatchNormProgram::kSettle, BatchNormProgram::kGiven,
                                 BatchNormProgram::kNormalise}) {
    average_ = init.node().AttrOr<float>("exponential_avg_factor", 1.0f);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(ChannelBlocks v, CheckBatchNorm(ctx, attrs_, average_));
    CudaCall call(ctx);
    const void* inputs[5];
    for (int i = 0; i < 5; ++i) {
      MR_ASSIGN_OR_RETURN(inputs[i], call.Input(i));
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, call.Output(0, ctx.input(0).shape()));
    BatchNormProgram::Vectors vectors = {.scale = inputs[1], .mean = inputs[3], .variance = inputs[4]};
    for (int i = 0; i < 4; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * result, call.Output(1 + i, Shape({v.channels})));
      vectors.results[i] = result->raw_data();
    }
    if (ctx.num_outputs() > 5) {
      MR_ASSIGN_OR_RETURN(Tensor * unused, call.Output(5, Shape()));
      MR_RETURN_IF_ERROR(ClearTensor(ctx, unused));
    }
    if (v.channels == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const Tensor factor, Scratch(call, v.channels * static_cast<int64_t>(sizeof(float))));
    vectors.factor = factor.raw_data();
    vectors.epsilon = attrs_.epsilon;
    vectors.average = average_;
    if (attrs_.training) {
      const ColumnPlan plan = SumsOf(v);
      MR_ASSIGN_OR_RETURN(const Tensor partial,
                          Scratch(call, plan.pieces() * v.channels * BatchNormProgram::kMomentsSize));
      void* pieces = partial.raw_data();
      MR_RETURN_IF_ERROR(OverColumns(call, BatchNormProgram::kMoments, plan, {&v, &inputs[0], &pieces}));
      MR_RETURN_IF_ERROR(OverColumns(call, BatchNormProgram::kSettle, plan.Join(), {&vectors, &pieces}));
    } else {
      MR_RETURN_IF_ERROR(OverElements(call, BatchNormProgram::kGiven, v.channels, {&vectors}));
    }
    if (v.size() == 0) return absl::OkStatus();
    void *mean = vectors.results[2], *to = y->raw_data();
    return OverElements(call, BatchNormProgram::kNormalise, v.size(),
                        {&v, &inputs[0], &mean, &vectors.factor, &inputs[2], &to});
  }

 private:
  float average_ = 1;
};

// Inputs: dy, x, scale, the mean and the variance that x was normalised with.
class CudaBatchNormGradKernel : public CudaBatchNormBase {
 public:
  explicit CudaBatchNormGradKernel(KernelInit& init)
      : CudaBatchNormBase(init, {BatchNormProgram::kSums, BatchNormProgram::kSettleSums, BatchNormProgram::kGradient}) {
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(ChannelBlocks v, CheckBatchNormGrad(ctx, attrs_));
    CudaCall call(ctx);
    const void* inputs[5];
    for (int i = 0; i < 5; ++i) {
      MR_ASSIGN_OR_RETURN(inputs[i], call.Input(i));
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, call.Output(0, ctx.input(1).shape()));
    MR_ASSIGN_OR_RETURN(Tensor * dscale, call.Output(1, Shape({v.channels})));
    MR_ASSIGN_OR_RETURN(Tensor * doffset, call.Output(2, Shape({v.channels})));
    for (int i = 3; i < 5; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * unused, call.Output(i, Shape()));
      MR_RETURN_IF_ERROR(ClearTensor(ctx, unused));
    }
    if (v.channels == 0) return absl::OkStatus();
    const int64_t vector = v.channels * static_cast<int64_t>(sizeof(float));
    MR_ASSIGN_OR_RETURN(const Tensor slopes, Scratch(call, 3 * vector));
    char* const first = static_cast<char*>(slopes.raw_data());
    BatchNormProgram::Gradients gradients = {.scale = inputs[2],
                                             .variance = inputs[4],
                                             .dscale = dscale->raw_data(),
                                             .doffset = doffset->raw_data(),
                                             .slope = first,
                                             .shift = first + vector,
                                             .tilt = first + 2 * vector,
                                             .epsilon = attrs_.epsilon,
                                             .count = attrs_.training ? static_cast<float>(v.per_channel()) : 0};
    const ColumnPlan plan = SumsOf(v);
    MR_ASSIGN_OR_RETURN(const Tensor partial, Scratch(call, plan.pieces() * v.channels * BatchNormProgram::kSumsSize));
    void *pieces = partial.raw_data(), *to = dx->raw_data();
    MR_RETURN_IF_ERROR(
        OverColumns(call, BatchNormProgram::kSums, plan, {&v, &inputs[0], &inputs[1], &inputs[3], &pieces}));
    MR_RETURN_IF_ERROR(OverColumns(call, BatchNormProgram::kSettleSums, plan.Join(), {&gradients, &pieces}));
    if (v.size() == 0) return absl::OkStatus();
    return OverElements(call, BatchNormProgram::kGradient, v.size(),
                        {&v, &inputs[0], &inputs[1], &inputs[3], &gradients, &to});
  }
};

std::vector<DType> BatchNormTypes() { return {DType::kHalf, DType::kBFloat16, DType::kFloat}; }

MILLRACE_KERNEL_OF(FusedBatchNorm, kCuda, ({"T", {DType::kFloat}}), CudaBatchNormKernel);
MILLRACE_KERNEL_OF(FusedBatchNormV2, kCuda, ({"T", BatchNormTypes(), "U", {DType::kFloat}}), CudaBatchNormKernel);
MILLRACE_KERNEL_OF(FusedBatchNormV3, kCuda, ({"T", BatchNormTypes(), "U", {DType::kFloat}}), CudaBatchNormKernel);
MILLRACE_KERNEL_OF(FusedBatchNormGrad, kCuda, ({"T", {DType::kFloat}}), CudaBatchNormGradKernel);
MILLRACE_KERNEL_OF(FusedBatchNormGradV2, kCuda, ({"T", BatchNormTypes(), "U", {DType::kFloat}}),
                   CudaBatchNormGradKernel);
MILLRACE_KERNEL_OF(FusedBatchNormGradV3, kCuda, ({"T", BatchNormTypes(), "U", {DType::kFloat}}),
                   CudaBatchNormGradKernel);

}  // namespace
}  // namespace millrace
