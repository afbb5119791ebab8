// Reductions along axes on a GPU, and those whose axes are fixed: BiasAddGrad, L2Loss.
#include "millrace/ops/kernels/cuda/reduction_ops.h"

#include <memory>

#include "millrace/ops/kernels/cuda/gpu_reduction.h"

namespace millrace {
namespace {

const ReductionProgram& ProgramOf(const std::string& op) {
  for (const ReductionOp& known : ReductionOps()) {
    if (known.name == op) return known.program;
  }
  MR_CHECK(false);
  std::abort();
}

class CudaReductionKernel : public Kernel {
 public:
  explicit CudaReductionKernel(KernelInit& init) {
    init.Fail(reduction_.Init(ProgramOf(init.node().type()), init.output_type(0),
                              CudaDevice::GpuOf(init.device())->ordinal()));
  }

 protected:
  Status Reduce(KernelContext& ctx, absl::Span<const ReduceAxes::Run> runs, const Shape& shape) {
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    return reduction_.Run(call, runs, ctx.input(0), out);
  }

 private:
  GpuReduction reduction_;
};

class CudaAxesKernel : public CudaReductionKernel {
 public:
  explicit CudaAxesKernel(KernelInit& init) : CudaReductionKernel(init) { init.Attr("keep_dims", &keep_dims_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    ReduceAxes axes;
    MR_RETURN_IF_ERROR(axes.Init(input.shape(), ctx.input(1), keep_dims_));
    const bool any = std::any_of(axes.runs.begin(), axes.runs.end(), [](const auto& run) { return run.reduced; });
    if (!any) {
      ctx.SetOutput(0, input.ViewAs(input.dtype(), axes.output));
      return absl::OkStatus();
    }
    return Reduce(ctx, axes.runs, axes.output);
  }

 private:
  bool keep_dims_ = false;
};

// The sum over everything but the channels.
class CudaBiasAddGradKernel : public CudaReductionKernel {
 public:
  explicit CudaBiasAddGradKernel(KernelInit& init)
      : CudaReductionKernel(init), channels_first_(init.node().AttrOr<std::string>("data_format", "NHWC") == "NCHW") {}

  Status Compute(KernelContext& ctx) override {
    const Shape& shape = ctx.input(0).shape();
    if (shape.rank() < 2) {
      return InvalidArgument("the value must have at least two dimensions, but has shape ", shape.ToString());
    }
    const int axis = channels_first_ ? 1 : shape.rank() - 1;
    const ReduceAxes::Run runs[] = {
        {shape.Product(0, axis), true}, {shape.dim(axis), false}, {shape.Product(axis + 1, shape.rank()), true}};
    return Reduce(ctx, absl::MakeConstSpan(runs, axis + 1 == shape.rank() ? 2 : 3), Shape({shape.dim(axis)}));
  }

 private:
  const bool channels_first_;
};

class CudaL2LossKernel : public CudaReductionKernel {
 public:
  using CudaReductionKernel::CudaReductionKernel;
  Status Compute(KernelContext& ctx) override {
    const ReduceAxes::Run all = {ctx.input(0).num_elements(), true};
    return Reduce(ctx, absl::MakeConstSpan(&all, 1), Shape());
  }
};

template <typename T>
std::unique_ptr<Kernel> MakeKernel(KernelInit& init) {
  return std::make_unique<T>(init);
}

[[maybe_unused]] const bool reductions_registered = [] {
  for (const ReductionOp& op : ReductionOps()) {
    const KernelRegistry::Factory factory = op.name == "BiasAddGrad" ? &MakeKernel<CudaBiasAddGradKernel>
                                            : op.name == "L2Loss"    ? &MakeKernel<CudaL2LossKernel>
                                                                     : &MakeKernel<CudaAxesKernel>;
    KernelTypes types;
    if (op.attr != nullptr) types = {op.attr, op.types};
    KernelRegistry::Global().Register(op.name, kCuda, factory, std::move(types));
  }
  return true;
}();

}  // namespace

const std::vector<ReductionOp>& ReductionOps() {
  static const auto* const ops = new std::vector<ReductionOp>{
      {"Sum", {"AddFn", "Acc(0)"}, "T", CudaNumbers()},
      {"Mean",
       {.combine = "AddFn", .identity = "Acc(0)", .finish = "a / static_cast<Acc>(count)"},
       "T",
       CudaRealFloats()},
      {"Prod", {"MulFn", "Acc(1)"}, "T", CudaNumbers()},
      {"Max", {"MaximumFn", "Limits<Acc>::Least()"}, "T", CudaReals()},
      {"Min", {"MinimumFn", "Limits<Acc>::Greatest()"}, "T", CudaReals()},
      {"All", {"LogicalAndFn", "true"}, nullptr, {}},
      {"Any", {"LogicalOrFn", "false"}, nullptr, {}},
      {"BiasAddGrad", {"AddFn", "Acc(0)"}, "T", CudaNumbers()},
      {"L2Loss",
       {.combine = "AddFn", .identity = "Acc(0)", .load = "x * x", .finish = "a / Acc(2)"},
       "T",
       CudaRealFloats()},
  };
  return *ops;
}

}  // namespace millrace
