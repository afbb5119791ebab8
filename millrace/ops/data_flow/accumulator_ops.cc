// Ops of conditional accumulators: by reference and by resource handle, dense and sparse.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/accumulator.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <bool kSparse>
class AccumulatorKernel : public Kernel {
 public:
  explicit AccumulatorKernel(KernelInit& init) : source_(init) {
    std::string reduction;
    options_.name = source_.name();
    options_.sparse = kSparse;
    init.Attr("dtype", &options_.dtype);
    init.Attr("shape", &options_.shape);
    init.Attr("reduction_type", &reduction);
    options_.mean = reduction == "MEAN";
    if (init.status().ok() && !DispatchType(FloatTypes{}, options_.dtype, [](auto) {})) {
      FailDType(init, options_.dtype);
    }
  }

  Status Compute(KernelContext& ctx) override {
    return source_.Emit(
        ctx, [this]() -> StatusOr<RefPtr<Accumulator>> { return MakeRef<Accumulator>(options_); },
        [this](const Accumulator& found) {
          const Accumulator::Options& has = found.options();
          if (has.dtype == options_.dtype && has.sparse == options_.sparse) return absl::OkStatus();
          return InvalidArgument("'", has.name, "' is ", has.sparse ? "a sparse" : "a dense", " accumulator of ",
                                 has.dtype, ", not ", options_.sparse ? "a sparse" : "a dense", " one of ",
                                 options_.dtype);
        });
  }

 private:
  ResourceSource<Accumulator> source_;
  Accumulator::Options options_;
};

// The accumulator of input 0, checked to be of the given kind and type.
StatusOr<RefPtr<Accumulator>> AccumulatorInput(const KernelContext& ctx, bool sparse, DType dtype) {
  MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, ctx.resource<Accumulator>(0));
  const Accumulator::Options& has = accumulator->options();
  if (has.sparse == sparse && has.dtype == dtype) return accumulator;
  return InvalidArgument("'", has.name, "' is ", has.sparse ? "a sparse" : "a dense", " accumulator of ", has.dtype,
                         ", but ", sparse ? "a sparse" : "a dense", " one of ", dtype, " is wanted");
}

StatusOr<int64_t> StepInput(const Tensor& step, const char* name) {
  if (step.rank() == 0) return step.scalar<int64_t>();
  return InvalidArgument("Argument ", name, " must be scalar, but had bad shape ", step.shape().ToString());
}

template <bool kSparse>
class ApplyKernel : public Kernel {
 public:
  explicit ApplyKernel(KernelInit& init) {
    if constexpr (kSparse) init.Attr("has_known_shape", &has_known_shape_);
  }
  bool is_recorded() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    GradientPart gradient;
    gradient.values = &ctx.input(kSparse ? 3 : 2);
    if constexpr (kSparse) {
      gradient.indices = &ctx.input(2);
      if (has_known_shape_) gradient.shape = &ctx.input(4);
    }
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, AccumulatorInput(ctx, kSparse, gradient.values->dtype()));
    MR_ASSIGN_OR_RETURN(const int64_t local_step, StepInput(ctx.input(1), "local_step"));
    return accumulator->Apply(CallingOp(ctx), local_step, gradient);
  }

 private:
  bool has_known_shape_ = false;
};

template <bool kSparse>
class TakeKernel : public AsyncKernel {
 public:
  explicit TakeKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<Accumulator>> accumulator = AccumulatorInput(ctx, kSparse, ctx.output_type(kSparse ? 1 : 0));
    if (!accumulator.ok()) return done(accumulator.status());
    const Tensor& required = ctx.input(1);
    if (required.rank() != 0) {
      return done(
          InvalidArgument("Argument num_required must be scalar, but had bad shape ", required.shape().ToString()));
    }
    (*accumulator)
        ->Take(CallingOp(ctx), required.scalar<int32_t>(),
               [&ctx, done = std::move(done)](StatusOr<std::vector<Tensor>> taken) mutable {
                 if (!taken.ok()) return done(taken.status());
                 for (size_t i = 0; i < taken->size(); ++i) {
                   ctx.SetOutput(static_cast<int>(i), std::move((*taken)[i]));
                 }
                 done(absl::OkStatus());
               });
  }
};

class SetGlobalStepKernel : public Kernel {
 public:
  explicit SetGlobalStepKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, ctx.resource<Accumulator>(0));
    MR_ASSIGN_OR_RETURN(const int64_t step, StepInput(ctx.input(1), "new_global_step"));
    accumulator->SetGlobalStep(CallingOp(ctx), step);
    return absl::OkStatus();
  }
};

class BeginKernel : public Kernel {
 public:
  explicit BeginKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, ctx.resource<Accumulator>(0));
    MR_ASSIGN_OR_RETURN(const int64_t step, StepInput(ctx.input(1), "global_step"));
    const Tensor& continues = ctx.input(2);
    if (continues.rank() != 0)
      return InvalidArgument("Argument continues must be scalar, but had bad shape ", continues.shape().ToString());
    if (continues.scalar<bool>()) {
      accumulator->SetGlobalStep(CallingOp(ctx), step);
    } else {
      accumulator->BeginAnew(CallingOp(ctx), step);
    }
    return absl::OkStatus();
  }
};

class HasBegunKernel : public Kernel {
 public:
  explicit HasBegunKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, ctx.resource<Accumulator>(0));
    ctx.SetOutput(0, Tensor::Scalar(accumulator->has_begun()));
    return absl::OkStatus();
  }
};

class NumAccumulatedKernel : public Kernel {
 public:
  explicit NumAccumulatedKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, ctx.resource<Accumulator>(0));
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(accumulator->num_accumulated())));
    return absl::OkStatus();
  }
};

class NumDroppedKernel : public Kernel {
 public:
  explicit NumDroppedKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, ctx.resource<Accumulator>(0));
    ctx.SetOutput(0, Tensor::Scalar<int64_t>(accumulator->num_dropped()));
    return absl::OkStatus();
  }
};

Status StepShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  return NoOutputs(c);
}

Status AccumulatorTakeShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  return UnknownShape(c);
}

Status SparseTakeShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(AccumulatorTakeShape(c));
  c.set_output(0, PartialShape({PartialShape::kUnknown}));
  c.set_output(2, PartialShape({PartialShape::kUnknown}));
  return absl::OkStatus();
}

#define MR_ACCUMULATOR(name, handle, text)              \
  MILLRACE_OP(name)                                     \
      .Output("handle: " handle)                        \
      .Attr("dtype: numbertype")                        \
      .Attr("shape: shape")                             \
      .Attr("container: string = ''")                   \
      .Attr("shared_name: string = ''")                 \
      .Attr("reduction_type: {'MEAN', 'SUM'} = 'MEAN'") \
      .Stateful()                                       \
      .Shape(ScalarShape)                               \
      .NotDifferentiable()                              \
      .Summary(text)
MR_ACCUMULATOR(ConditionalAccumulator, "Ref(string)", "Gathers gradients for one update.");
MR_ACCUMULATOR(ResourceConditionalAccumulator, "resource", "Gathers gradients for one update.");
MR_ACCUMULATOR(SparseConditionalAccumulator, "Ref(string)", "Gathers rows of gradients for one update.");

#define MR_ACCUMULATOR_APPLY(name, handle) \
  MILLRACE_OP(name)                        \
      .Input("handle: " handle)            \
      .Input("local_step: int64")          \
      .Input("gradient: dtype")            \
      .Attr("dtype: numbertype")           \
      .Shape(StepShape)                    \
      .NotDifferentiable()                 \
      .Summary("Adds a gradient unless it is stale.")
MR_ACCUMULATOR_APPLY(AccumulatorApplyGradient, "Ref(string)");
MR_ACCUMULATOR_APPLY(ResourceAccumulatorApplyGradient, "resource").Stateful();

MILLRACE_OP(SparseAccumulatorApplyGradient)
    .Input("handle: Ref(string)")
    .Input("local_step: int64")
    .Input("gradient_indices: int64")
    .Input("gradient_values: dtype")
    .Input("gradient_shape: int64")
    .Attr("dtype: numbertype")
    .Attr("has_known_shape: bool")
    .Shape(StepShape)
    .NotDifferentiable()
    .Summary("Adds a sparse gradient unless it is stale.");

#define MR_ACCUMULATOR_TAKE(name, handle) \
  MILLRACE_OP(name)                       \
      .Input("handle: " handle)           \
      .Input("num_required: int32")       \
      .Output("average: dtype")           \
      .Attr("dtype: numbertype")          \
      .Shape(AccumulatorTakeShape)        \
      .NotDifferentiable()                \
      .Trait(OpTrait::kWaits)             \
      .Summary("Waits for enough gradients and takes their mean or sum.")
MR_ACCUMULATOR_TAKE(AccumulatorTakeGradient, "Ref(string)");
MR_ACCUMULATOR_TAKE(ResourceAccumulatorTakeGradient, "resource").Stateful();

MILLRACE_OP(SparseAccumulatorTakeGradient)
    .Input("handle: Ref(string)")
    .Input("num_required: int32")
    .Output("indices: int64")
    .Output("values: dtype")
    .Output("shape: int64")
    .Attr("dtype: numbertype")
    .Shape(SparseTakeShape)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("Waits for enough sparse gradients and takes their mean or sum.");

#define MR_ACCUMULATOR_STEP(name, handle) \
  MILLRACE_OP(name)                       \
      .Input("handle: " handle)           \
      .Input("new_global_step: int64")    \
      .Shape(StepShape)                   \
      .NotDifferentiable()                \
      .Summary("Sets the global step; gradients of earlier steps are stale.")
MR_ACCUMULATOR_STEP(AccumulatorSetGlobalStep, "Ref(string)");
MR_ACCUMULATOR_STEP(ResourceAccumulatorSetGlobalStep, "resource").Stateful();

#define MR_ACCUMULATOR_COUNT(name, handle) \
  MILLRACE_OP(name)                        \
      .Input("handle: " handle)            \
      .Output("num_accumulated: int32")    \
      .Shape(ScalarShape)                  \
      .NotDifferentiable()                 \
      .Summary("The number of accumulated gradients.")
MR_ACCUMULATOR_COUNT(AccumulatorNumAccumulated, "Ref(string)");
MR_ACCUMULATOR_COUNT(ResourceAccumulatorNumAccumulated, "resource").Stateful();

// The next three are not available in TensorFlow.
MILLRACE_OP(MillraceAccumulatorHasBegun)
    .Input("handle: Ref(string)")
    .Output("has_begun: bool")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Whether the accumulator has been given a global step since it was made.");
MILLRACE_OP(MillraceAccumulatorBegin)
    .Input("handle: Ref(string)")
    .Input("global_step: int64")
    .Input("continues: bool")
    .Stateful()
    .Shape(StepShape)
    .NotDifferentiable()
    .Summary("Sets the global step, and forgets all gradients unless the training continues.");
MILLRACE_OP(MillraceAccumulatorNumDropped)
    .Input("handle: Ref(string)")
    .Output("num_dropped: int64")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The number of gradients that were dropped as stale.");

MILLRACE_KERNEL(MillraceAccumulatorBegin, kCpu, BeginKernel);
MILLRACE_KERNEL(MillraceAccumulatorHasBegun, kCpu, HasBegunKernel);
MILLRACE_KERNEL(MillraceAccumulatorNumDropped, kCpu, NumDroppedKernel);
MILLRACE_KERNEL(ConditionalAccumulator, kCpu, AccumulatorKernel<false>);
MILLRACE_KERNEL(ResourceConditionalAccumulator, kCpu, AccumulatorKernel<false>);
MILLRACE_KERNEL(SparseConditionalAccumulator, kCpu, AccumulatorKernel<true>);
MILLRACE_KERNEL(AccumulatorApplyGradient, kCpu, ApplyKernel<false>);
MILLRACE_KERNEL(ResourceAccumulatorApplyGradient, kCpu, ApplyKernel<false>);
MILLRACE_KERNEL(SparseAccumulatorApplyGradient, kCpu, ApplyKernel<true>);
MILLRACE_KERNEL(AccumulatorTakeGradient, kCpu, TakeKernel<false>);
MILLRACE_KERNEL(ResourceAccumulatorTakeGradient, kCpu, TakeKernel<false>);
MILLRACE_KERNEL(SparseAccumulatorTakeGradient, kCpu, TakeKernel<true>);
MILLRACE_KERNEL(AccumulatorSetGlobalStep, kCpu, SetGlobalStepKernel);
MILLRACE_KERNEL(ResourceAccumulatorSetGlobalStep, kCpu, SetGlobalStepKernel);
MILLRACE_KERNEL(AccumulatorNumAccumulated, kCpu, NumAccumulatedKernel);
MILLRACE_KERNEL(ResourceAccumulatorNumAccumulated, kCpu, NumAccumulatedKernel);

}  // namespace
}  // namespace millrace
