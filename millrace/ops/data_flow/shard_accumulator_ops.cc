// Accumulators in fixed order: made, and given the gradients of logical shards. The other ops are those of conditional
// accumulators. Programs use them through train/sync/sync_replicas_optimizer.h.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/accumulator.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The maximum in a graph: each shard takes some memory.
constexpr int64_t kMaxShards = 1 << 20;

class ShardAccumulatorKernel : public Kernel {
 public:
  explicit ShardAccumulatorKernel(KernelInit& init) : source_(init) {
    int64_t shards = 0;
    options_.name = source_.name();
    init.Attr("dtype", &options_.dtype);
    init.Attr("shape", &options_.shape);
    init.Attr("sparse", &options_.sparse);
    init.Attr("mean", &options_.mean);
    init.Attr("shards", &shards);
    if (!init.status().ok()) return;
    if (shards < 1 || shards > kMaxShards) {
      init.Fail(InvalidArgument("shards must be from 1 to ", kMaxShards, ", but is ", shards));
      return;
    }
    options_.shards = static_cast<int>(shards);
    if (!DispatchType(FloatTypes{}, options_.dtype, [](auto) {})) FailDType(init, options_.dtype);
  }

  Status Compute(KernelContext& ctx) override {
    return source_.Emit(
        ctx, [this]() -> StatusOr<RefPtr<Accumulator>> { return MakeRef<Accumulator>(options_); },
        [this](const Accumulator& found) {
          const Accumulator::Options& has = found.options();
          if (has.dtype == options_.dtype && has.sparse == options_.sparse && has.shards == options_.shards &&
              has.mean == options_.mean) {
            return absl::OkStatus();
          }
          return InvalidArgument("accumulator '", has.name, "' is of ", has.shards, " shards of ",
                                 has.sparse ? "rows of " : "", has.dtype, ", not of ", options_.shards, " of ",
                                 options_.sparse ? "rows of " : "", options_.dtype, ": all workers must say the same");
        });
  }

 private:
  ResourceSource<Accumulator> source_;
  Accumulator::Options options_;
};

// Inputs: accumulator, step, values, and indices if sparse.
class ApplyShardsKernel : public Kernel {
 public:
  explicit ApplyShardsKernel(KernelInit& init) {
    init.Attr("first", &first_);
    init.Attr("last", &last_);
    sparse_ = init.node().num_inputs() == 4;
    if (init.status().ok() && (first_ < 0 || last_ <= first_ || last_ > kMaxShards))
      init.Fail(InvalidArgument("there are no shards from ", first_, " to before ", last_));
  }
  bool is_recorded() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, ctx.resource<Accumulator>(0));
    const Accumulator::Options& has = accumulator->options();
    if (has.shards == 0 || has.sparse != sparse_) {
      const char* const kind = has.shards == 0 ? "not one of shards" : has.sparse ? "one of rows" : "a dense one";
      return InvalidArgument("accumulator '", has.name, "' is ", kind, ", and is given ",
                             sparse_ ? "rows" : "a dense gradient", " of shards");
    }
    if (ctx.input(1).rank() != 0)
      return InvalidArgument("step must be a scalar, but has shape ", ctx.input(1).shape().ToString());
    GradientPart gradient{.values = &ctx.input(2),
                          .indices = sparse_ ? &ctx.input(3) : nullptr,
                          .shards = {static_cast<int>(first_), static_cast<int>(last_)}};
    return accumulator->Apply(CallingOp(ctx), ctx.input(1).scalar<int64_t>(), gradient);
  }

 private:
  int64_t first_ = 0, last_ = 0;
  bool sparse_ = false;
};

Status ShardStepShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  return NoOutputs(c);
}

MILLRACE_OP(MillraceShardAccumulator)
    .Output("handle: Ref(string)")
    .Attr("dtype: numbertype")
    .Attr("shape: shape")
    .Attr("shards: int >= 1")
    .Attr("sparse: bool = false")
    .Attr("mean: bool = true")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Gathers the gradients of logical shards, which it adds in a fixed order.");
MILLRACE_OP(MillraceShardAccumulatorApply)
    .Input("handle: Ref(string)")
    .Input("step: int64")
    .Input("gradient: dtype")
    .Attr("first: int >= 0")
    .Attr("last: int >= 1")
    .Attr("dtype: numbertype")
    .Shape(ShardStepShape)
    .NotDifferentiable()
    .Summary("Adds the gradient of the shards from `first` to before `last`, unless it is stale or there already.");
MILLRACE_OP(MillraceShardAccumulatorApplyRows)
    .Input("handle: Ref(string)")
    .Input("step: int64")
    .Input("values: dtype")
    .Input("indices: int64")
    .Attr("first: int >= 0")
    .Attr("last: int >= 1")
    .Attr("dtype: numbertype")
    .Shape(ShardStepShape)
    .NotDifferentiable()
    .Summary("Adds the rows of the shards from `first` to before `last`, unless they are stale or there already.");

MILLRACE_KERNEL(MillraceShardAccumulator, kCpu, ShardAccumulatorKernel);
MILLRACE_KERNEL(MillraceShardAccumulatorApply, kCpu, ApplyShardsKernel);
MILLRACE_KERNEL(MillraceShardAccumulatorApplyRows, kCpu, ApplyShardsKernel);

}  // namespace
}  // namespace millrace
