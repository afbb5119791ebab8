// Dense updates of all optimizers on a GPU.
#include <memory>
#include <utility>

#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/training/cuda/optimizer_program.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

class CudaOptimizerKernel : public OptimizerKernel {
 public:
  CudaOptimizerKernel(KernelInit& init, const OptimizerProgram& program, absl::Span<const char* const> scalars,
                      const char* flag)
      : OptimizerKernel(init, program.variables, scalars, flag), program_(program) {
    StatusOr<cudaKernel_t> kernel =
        CompiledKernel(program_.Text(dtype()), OptimizerProgram::kKernel, CudaDevice::GpuOf(init.device())->ordinal());
    if (kernel.ok()) {
      kernel_ = *kernel;
    } else {
      init.Fail(kernel.status());
    }
  }

 protected:
  Status ApplyDense(KernelContext& ctx, const Tensor* const* scalars, absl::Span<const Tensor> from, const Tensor& grad,
                    absl::Span<Tensor> to) const override {
    CudaCall call(ctx);
    int64_t n = grad.num_elements();
    if (n == 0) return absl::OkStatus();
    // The scalars stay on the device, so that the host does not wait for them.
    std::vector<const void*> addresses;
    for (int i = 0; i < program_.scalars; ++i) {
      MR_ASSIGN_OR_RETURN(addresses.emplace_back(), call.Memory(*scalars[i]));
    }
    for (const Tensor& value : from) {
      MR_ASSIGN_OR_RETURN(addresses.emplace_back(), call.Memory(value));
    }
    MR_ASSIGN_OR_RETURN(addresses.emplace_back(), call.Memory(grad));
    for (const Tensor& value : to) {
      MR_ASSIGN_OR_RETURN(addresses.emplace_back(), call.Memory(value));
    }
    int flag_argument = flag() ? 1 : 0;
    std::vector<void*> arguments = {&n, &flag_argument};
    for (const void*& address : addresses) arguments.push_back(&address);
    return call.LaunchOverElements(program_.optimizer, kernel_, n, arguments);
  }

 private:
  const OptimizerProgram program_;
  cudaKernel_t kernel_ = nullptr;
};

struct Registered {
  GpuOptimizer optimizer;
  KernelRegistry::Factory factory;
};

const OptimizerProgram& ProgramOf(const std::string& op) {
  for (const GpuOptimizer& optimizer : GpuOptimizers()) {
    if (optimizer.op == op) return optimizer.program;
  }
  MR_CHECK(false);
  std::abort();
}

template <typename Optimizer>
Registered Of(const char* op, const char* name, std::vector<DType> types) {
  return {{op,
           {name, Optimizer::kVariables, static_cast<int>(std::size(Optimizer::kScalars))},
           {std::begin(Optimizer::kScalars), std::end(Optimizer::kScalars)},
           std::move(types)},
          [](KernelInit& init) -> std::unique_ptr<Kernel> {
            return std::make_unique<CudaOptimizerKernel>(init, ProgramOf(init.node().type()), Optimizer::kScalars,
                                                         Optimizer::kFlag);
          }};
}

const std::vector<Registered>& All() {
  const std::vector<DType> floats = CudaRealFloats();
  const std::vector<DType> wide = {DType::kFloat, DType::kDouble};
#define MR_OF(op, optimizer, types) Of<optimizer_steps::optimizer>(op, #optimizer, types)
#define MR_BOTH(op, optimizer, types) MR_OF("Apply" op, optimizer, types), MR_OF("ResourceApply" op, optimizer, types)
  static const auto* const all = new std::vector<Registered>{
      MR_BOTH("GradientDescent", GradientDescent, CudaFloats()),
      MR_BOTH("ProximalGradientDescent", ProximalGradientDescent, wide),
      MR_BOTH("Momentum", Momentum, floats),
      MR_OF("ResourceApplyKerasMomentum", KerasMomentum, floats),
      MR_BOTH("Adagrad", Adagrad, floats),
      MR_BOTH("AdagradV2", AdagradV2, floats),
      MR_BOTH("ProximalAdagrad", ProximalAdagrad, wide),
      MR_BOTH("Adadelta", Adadelta, floats),
      MR_BOTH("RMSProp", RmsProp, floats),
      MR_BOTH("CenteredRMSProp", CenteredRmsProp, floats),
      MR_BOTH("Adam", Adam, floats),
      MR_OF("ResourceApplyAdamWithAmsgrad", Amsgrad, floats),
      MR_BOTH("AdaMax", AdaMax, floats),
      MR_BOTH("Ftrl", Ftrl, floats),
      MR_BOTH("FtrlV2", FtrlV2, floats),
      MR_BOTH("AddSign", AddSign, floats),
      MR_BOTH("PowerSign", PowerSign, floats),
  };
#undef MR_BOTH
#undef MR_OF
  return *all;
}

[[maybe_unused]] const bool optimizers_registered = [] {
  for (const Registered& one : All()) {
    KernelRegistry::Global().Register(one.optimizer.op, kCuda, one.factory, {"T", one.optimizer.types});
  }
  return true;
}();

}  // namespace

const std::vector<GpuOptimizer>& GpuOptimizers() {
  static const auto* const optimizers = [] {
    auto* const list = new std::vector<GpuOptimizer>;
    for (const Registered& one : All()) list->push_back(one.optimizer);
    return list;
  }();
  return *optimizers;
}

}  // namespace millrace
