// Convolutions and their gradients on a GPU: by cuDNN, or by loops of our own where it has no engine.
#include <map>

#include "absl/strings/match.h"
#include "millrace/base/log.h"
#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/nn/cuda/column_plan.h"
#include "millrace/ops/nn/cuda/conv_plan.h"
#include "millrace/ops/nn/cuda/conv_program.h"
#include "millrace/ops/nn/cuda/plan_cache.h"

namespace millrace {
namespace {

// The plans of all GPUs of the process; null where cuDNN has no engine.
class ConvPlans {
 public:
  static ConvPlans& Global() {
    static auto* const plans = new ConvPlans;
    return *plans;
  }

  StatusOr<std::shared_ptr<const ConvPlan>> Get(Gpu* gpu, const Cudnn& cudnn, cudnnHandle_t handle,
                                                const ConvPlanKey& key) {
    MutexLock lock(&mu_);
    Plans& plans = plans_.try_emplace(gpu, kMostPlans).first->second;
    return plans.Get(key, [&]() -> StatusOr<std::shared_ptr<const ConvPlan>> {
      // The plan that makes room may still be at work.
      if (plans.size() == kMostPlans) MR_RETURN_IF_ERROR(gpu->Synchronize());
      StatusOr<ConvPlan> plan = ConvPlan::Make(cudnn, {.handle = handle, .card = {}}, key);
      if (plan.ok()) return std::make_shared<const ConvPlan>(*std::move(plan));
      if (!absl::IsNotFound(plan.status())) return plan.status();
      MR_LOG(Warning, plan.status().message(), "; a slower kernel of Millrace's computes it");
      return nullptr;
    });
  }

 private:
  using Plans = PlanCache<ConvPlanKey, StatusOr<std::shared_ptr<const ConvPlan>>>;
  static constexpr size_t kMostPlans = 1024;
  Mutex mu_;
  std::map<const Gpu*, Plans> plans_ ABSL_GUARDED_BY(mu_);
};

// The filter [spatial..., in, out] as cuDNN wants it: [out, spatial..., in], with channels first [out, in, spatial...].
// Or back.
Status TurnFilter(KernelContext& ctx, const ConvGeometry& g, const Tensor& from, bool back, Tensor* to) {
  const int64_t taps = g.window_pixels(), in = g.filter_inputs(), out = g.out_channels;
  CopyBox box;
  const auto add = [&](int64_t size, int64_t here, int64_t there) {
    back ? box.Add(size, there, here) : box.Add(size, here, there);
  };
  add(out, 1, taps * in);
  add(taps, in * out, g.channels_first ? 1 : in);
  add(in, out, g.channels_first ? taps : 1);
  return StridedCopy(ctx, box, from, 0, to, 0);
}

class CudaConvKernel : public Kernel {
 public:
  explicit CudaConvKernel(KernelInit& init)
      : op_(init),
        ordinal_(CudaDevice::GpuOf(init.device())->ordinal()),
        is_depthwise_(absl::StartsWith(init.node().type(), "Depthwise")),
        program_(ConvProgram{.dtype = init.output_type(0)}.Text()),
        math_(GpuMath::FromEnvironment()) {
    // Without the library, or the compiler, an error before the first step, which names this node.
    const bool is_ours = is_depthwise_ || init.output_type(0) == DType::kDouble;
    if (const Status status = is_ours ? Compiled(ConvProgram::kForward).status() : Cudnn::Get().status(); !status.ok())
      init.Fail(status);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ConvOp::Call of, op_.Get(ctx));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(Tensor * c, call.Output(0, of.result));
    if (c->num_elements() == 0) return absl::OkStatus();
    MR_RETURN_IF_ERROR(call.Memory(*of.a).status());
    MR_RETURN_IF_ERROR(call.Memory(*of.b).status());
    if (of.a->num_elements() == 0 || of.b->num_elements() == 0) return ClearTensor(ctx, c);
    if (!is_depthwise_ && MayHaveConvPlan(c->dtype(), of.geometry)) {
      MR_ASSIGN_OR_RETURN(const bool done, ByCudnn(ctx, call, of, c));
      if (done) return absl::OkStatus();
    }
    return ByLoops(ctx, call, of, c);
  }

 private:
  // A tensor in scratch memory, or an operand, if cuDNN can read it where it is.
  StatusOr<Tensor> Scratch(const CudaCall& call, const Tensor& like) const {
    return Tensor::Make(like.dtype(), like.shape(), call.gpu()->allocator());
  }
  StatusOr<Tensor> Aligned(KernelContext& ctx, const CudaCall& call, const Tensor& x) const {
    if (reinterpret_cast<uintptr_t>(x.raw_data()) % ConvPlan::kAlignment == 0) return x;
    MR_ASSIGN_OR_RETURN(Tensor copy, Scratch(call, x));
    CopyBox box;
    box.Add(x.num_elements(), 1, 1);
    MR_RETURN_IF_ERROR(StridedCopy(ctx, box, x, 0, &copy, 0));
    return copy;
  }

  // False if cuDNN has no engine for it.
  StatusOr<bool> ByCudnn(KernelContext& ctx, const CudaCall& call, const ConvOp::Call& of, Tensor* c) const {
    const ConvKind kind = op_.kind();
    const ConvPlanKey key{.kind = kind, .dtype = c->dtype(), .math = math_, .geometry = of.geometry};
    bool done = false;
    const Status status = call.gpu()->WithCudnn([&](const Cudnn& cudnn, cudnnHandle_t handle) -> Status {
      MR_ASSIGN_OR_RETURN(const auto plan, ConvPlans::Global().Get(call.gpu(), cudnn, handle, key));
      if (plan == nullptr) return absl::OkStatus();
      MR_ASSIGN_OR_RETURN(Tensor a, Aligned(ctx, call, *of.a));
      MR_ASSIGN_OR_RETURN(Tensor b, Aligned(ctx, call, *of.b));
      Tensor result = *c;
      if (kind == ConvKind::kBackwardFilter) {
        MR_ASSIGN_OR_RETURN(result, Scratch(call, *c));
      } else {
        Tensor* const filter = kind == ConvKind::kForward ? &b : &a;
        MR_ASSIGN_OR_RETURN(Tensor turned, Scratch(call, *filter));
        MR_RETURN_IF_ERROR(TurnFilter(ctx, of.geometry, *filter, false, &turned));
        *filter = std::move(turned);
      }
      MR_ASSIGN_OR_RETURN(
          const Tensor workspace,
          Tensor::Make(DType::kUInt8, Shape({std::max<int64_t>(plan->workspace_size(), 1)}), call.gpu()->allocator()));
      MR_RETURN_IF_ERROR(plan->Run(cudnn, handle, a.raw_data(), b.raw_data(), result.raw_data(), workspace.raw_data()));
      if (kind == ConvKind::kBackwardFilter) MR_RETURN_IF_ERROR(TurnFilter(ctx, of.geometry, result, true, c));
      done = true;
      return absl::OkStatus();
    });
    MR_RETURN_IF_ERROR(status);
    return done;
  }

  StatusOr<cudaKernel_t> Compiled(const char* name) const { return CompiledKernel(program_, name, ordinal_); }

  Status ByLoops(KernelContext& ctx, const CudaCall& call, const ConvOp::Call& of, Tensor* c) const {
    ConvProgram::OnDevice g(of.geometry);
    const void *a = of.a->raw_data(), *b = of.b->raw_data();
    void* to = c->raw_data();
    if (op_.kind() != ConvKind::kBackwardFilter) {
      const bool is_forward = op_.kind() == ConvKind::kForward;
      MR_ASSIGN_OR_RETURN(cudaKernel_t kernel, Compiled(is_forward ? ConvProgram::kForward : ConvProgram::kInput));
      int64_t n = c->num_elements();
      std::vector<void*> arguments = {&n, &g, &a, &b, &to};
      return call.LaunchOverElements(ctx.node().type(), kernel, n, arguments);
    }
    MR_ASSIGN_OR_RETURN(cudaKernel_t sum, Compiled(ConvProgram::kFilter));
    MR_ASSIGN_OR_RETURN(cudaKernel_t join, Compiled(ConvProgram::kJoin));
    const ColumnPlan plan =
        ColumnPlan::Of(c->num_elements(), of.geometry.batch * of.geometry.out_pixels(), /*by_columns=*/true);
    const int64_t size = c->dtype() == DType::kDouble ? sizeof(double) : sizeof(float);
    MR_ASSIGN_OR_RETURN(
        const Tensor pieces,
        Tensor::Make(DType::kUInt8, Shape({plan.pieces() * c->num_elements() * size}), call.gpu()->allocator()));
    void* partial = pieces.raw_data();
    const ColumnPlan last = plan.Join();
    MR_RETURN_IF_ERROR(LaunchColumns(ctx, call, sum, plan, {&g, &a, &b, &partial}));
    return LaunchColumns(ctx, call, join, last, {&partial, &to});
  }

  static Status LaunchColumns(KernelContext& ctx, const CudaCall& call, cudaKernel_t kernel, ColumnPlan plan,
                              std::vector<void*> arguments) {
    arguments.insert(arguments.begin(), &plan.columns);
    return call.Launch(ctx.node().type(), kernel, dim3(plan.blocks[0], plan.blocks[1]),
                       dim3(plan.threads[0], plan.threads[1]), arguments);
  }

  const ConvOp op_;
  const int ordinal_;
  const bool is_depthwise_;
  const std::string program_;
  const GpuMath math_;
};

#define MR_CONV(op) MILLRACE_KERNEL_OF(op, kCuda, ({"T", CudaRealFloats()}), CudaConvKernel)
MR_CONV(Conv2D);
MR_CONV(Conv2DBackpropInput);
MR_CONV(Conv2DBackpropFilter);
MR_CONV(DepthwiseConv2dNative);
MR_CONV(DepthwiseConv2dNativeBackpropInput);
MR_CONV(DepthwiseConv2dNativeBackpropFilter);
MR_CONV(Conv3D);
MR_CONV(Conv3DBackpropInputV2);
MR_CONV(Conv3DBackpropFilterV2);
MR_CONV(Conv3DBackpropInput);
MR_CONV(Conv3DBackpropFilter);
#undef MR_CONV

}  // namespace
}  // namespace millrace
