// Updates of all optimizers on a GPU, dense and by rows.
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/gpu_rows.h"
#include "millrace/ops/training/cuda/optimizer_program.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

class CudaOptimizerKernel : public OptimizerKernel {
 public:
  CudaOptimizerKernel(KernelInit& init, const GpuOptimizer& op, absl::Span<const char* const> scalars, const char* flag)
      : OptimizerKernel(init, op.program.variables, scalars, flag),
        program_(op.program),
        kernel_(op.by_rows ? CompileFor(init, program_.RowsText(dtype()), OptimizerProgram::kRowsKernel)
                           : CompileFor(init, program_.Text(dtype()), OptimizerProgram::kKernel)) {
    if (!op.by_rows) return;
    DType index = DType::kInvalid;
    init.Attr("Tindices", &index);
    init.Fail(order_.Init(index, CudaDevice::GpuOf(init.device())->ordinal()));
  }

 protected:
  Status ApplyDense(KernelContext& ctx, const Tensor* const* scalars, absl::Span<const Tensor> from, const Tensor& grad,
                    absl::Span<Tensor> to) const override {
    CudaCall call(ctx);
    int64_t n = grad.num_elements();
    if (n == 0) return absl::OkStatus();
    std::vector<const void*> addresses;
    MR_RETURN_IF_ERROR(AddScalars(call, scalars, &addresses));
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

  // One kernel writes the rows of all variables, so that no reader sees one of them without the others.
  Status ApplyRows(KernelContext& ctx, const Tensor* const* scalars, const Variable::Rows& variables,
                   const SliceForm& rows, const Tensor& indices, const Tensor& grad) const override {
    CudaCall call(ctx);
    int64_t n = rows.count, columns = rows.size;
    if (n == 0 || columns == 0) return absl::OkStatus();
    const RowIndex form = RowIndex::Of(rows.rows);
    MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, indices, form, /*is_coordinates=*/false));
    MR_ASSIGN_OR_RETURN(const Tensor slots, order_.Sort(call, form, n, indices));
    std::vector<const void*> addresses = {slots.raw_data()};
    MR_RETURN_IF_ERROR(AddScalars(call, scalars, &addresses));
    MR_ASSIGN_OR_RETURN(addresses.emplace_back(), call.Memory(grad));
    for (const Tensor& value : variables.values) {
      MR_ASSIGN_OR_RETURN(addresses.emplace_back(), call.Memory(value));
    }
    int flag_argument = flag() ? 1 : 0;
    std::vector<void*> arguments = {&n, &columns, &flag_argument};
    for (const void*& address : addresses) arguments.push_back(&address);
    return call.LaunchOverRows(program_.optimizer, kernel_, n, columns, arguments);
  }

 private:
  // They stay on the device, so that the host does not wait for them.
  Status AddScalars(const CudaCall& call, const Tensor* const* scalars, std::vector<const void*>* addresses) const {
    for (int i = 0; i < program_.scalars; ++i) {
      MR_ASSIGN_OR_RETURN(addresses->emplace_back(), call.Memory(*scalars[i]));
    }
    return absl::OkStatus();
  }

  const OptimizerProgram program_;
  const cudaKernel_t kernel_;
  GpuRowOrder order_;
};

struct Registered {
  GpuOptimizer optimizer;
  KernelRegistry::Factory factory;
};

const GpuOptimizer& OptimizerOf(const std::string& op) {
  for (const GpuOptimizer& optimizer : GpuOptimizers()) {
    if (optimizer.op == op) return optimizer;
  }
  MR_CHECK(false);
  std::abort();
}

template <typename Optimizer>
Registered Of(const char* op, const char* name, const std::vector<DType>& types) {
  OptimizerProgram program{name, Optimizer::kVariables, static_cast<int>(std::size(Optimizer::kScalars))};
  for (int i = 0; i < program.scalars; ++i) {
    if (absl::string_view(Optimizer::kScalars[i]) == "global_step") program.step_scalar = i;
  }
  return {{op,
           absl::StrContains(op, "Sparse"),
           program,
           {std::begin(Optimizer::kScalars), std::end(Optimizer::kScalars)},
           types},
          [](KernelInit& init) -> std::unique_ptr<Kernel> {
            return std::make_unique<CudaOptimizerKernel>(init, OptimizerOf(init.node().type()), Optimizer::kScalars,
                                                         Optimizer::kFlag);
          }};
}

const std::vector<Registered>& All() {
  const std::vector<DType> floats = CudaRealFloats();
  const std::vector<DType> wide = {DType::kFloat, DType::kDouble};
#define MR_OF(op, optimizer, types) Of<optimizer_steps::optimizer>(op, #optimizer, types)
#define MR_BOTH(op, optimizer, types) MR_OF("Apply" op, optimizer, types), MR_OF("ResourceApply" op, optimizer, types)
#define MR_ALL(op, optimizer, types)                                        \
  MR_BOTH(op, optimizer, types), MR_OF("SparseApply" op, optimizer, types), \
      MR_OF("ResourceSparseApply" op, optimizer, types)
  static const auto* const all = new std::vector<Registered>{
      MR_BOTH("GradientDescent", GradientDescent, CudaFloats()),
      MR_ALL("ProximalGradientDescent", ProximalGradientDescent, wide),
      MR_ALL("Momentum", Momentum, floats),
      MR_OF("ResourceApplyKerasMomentum", KerasMomentum, floats),
      MR_OF("ResourceSparseApplyKerasMomentum", KerasMomentum, floats),
      MR_ALL("Adagrad", Adagrad, floats),
      MR_ALL("AdagradV2", AdagradV2, floats),
      MR_ALL("AdagradDA", AdagradDa, wide),
      MR_ALL("ProximalAdagrad", ProximalAdagrad, wide),
      MR_ALL("Adadelta", Adadelta, floats),
      MR_ALL("RMSProp", RmsProp, floats),
      MR_ALL("CenteredRMSProp", CenteredRmsProp, floats),
      MR_BOTH("Adam", Adam, floats),
      MR_OF("ResourceApplyAdamWithAmsgrad", Amsgrad, floats),
      MR_BOTH("AdaMax", AdaMax, floats),
      MR_ALL("Ftrl", Ftrl, floats),
      MR_ALL("FtrlV2", FtrlV2, floats),
      MR_BOTH("AddSign", AddSign, floats),
      MR_BOTH("PowerSign", PowerSign, floats),
  };
#undef MR_ALL
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
