// Barrier ops.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/barrier.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class BarrierKernel : public Kernel {
 public:
  explicit BarrierKernel(KernelInit& init) : source_(init) {
    std::vector<PartialShape> shapes;
    int64_t capacity = -1;
    options_.name = source_.name();
    init.Attr("component_types", &options_.types);
    init.Attr("shapes", &shapes);
    init.Attr("capacity", &capacity);
    if (capacity != -1) {
      init.Fail(
          InvalidArgument("Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to "
                          "enforce a limited capacity."));
    }
    if (!shapes.empty() && shapes.size() != options_.types.size()) {
      init.Fail(InvalidArgument("All of the component shapes must be specified"));
    }
    for (DType type : options_.types) {
      if (!IsKnown(type)) FailDType(init, type);
    }
    for (const PartialShape& shape : shapes) {
      if (shape.known_rank() && !shape.IsFullyDefined()) {
        init.Fail(InvalidArgument("Shape ", shape.ToString(), " is not fully defined"));
        return;
      }
      options_.shapes.push_back(shape);
    }
    options_.shapes.resize(options_.types.size());
  }

  Status Compute(KernelContext& ctx) override {
    return source_.Emit(
        ctx, [this]() -> StatusOr<RefPtr<Barrier>> { return MakeRef<Barrier>(options_); },
        [this](const Barrier& found) {
          const Barrier::Options& has = found.options();
          if (has.types != options_.types) {
            return InvalidArgument("Shared barrier '", has.name, "' has other component types than requested");
          }
          if (has.shapes == options_.shapes) return absl::OkStatus();
          return InvalidArgument("Shared barrier '", has.name, "' has other component shapes than requested");
        });
  }

 private:
  ResourceSource<Barrier> source_;
  Barrier::Options options_;
};

class InsertManyKernel : public Kernel {
 public:
  explicit InsertManyKernel(KernelInit& init) { init.Attr("component_index", &component_); }
  bool is_recorded() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Barrier> barrier, ctx.resource<Barrier>(0));
    const std::vector<DType>& types = barrier->options().types;
    if (component_ < 0 || component_ >= static_cast<int64_t>(types.size())) {
      return InvalidArgument("The component ID is out of range ", component_, " > num_components (= ", types.size(),
                             ")");
    }
    if (ctx.input(2).dtype() != types[component_]) {
      return InvalidArgument("Signature mismatch, have: ", ctx.input(2).dtype(), " expected: ", types[component_]);
    }
    return barrier->InsertMany(CallingOp(ctx), ctx.input(1), component_, ctx.input(2));
  }

 private:
  int64_t component_ = 0;
};

class BarrierTakeManyKernel : public AsyncKernel {
 public:
  explicit BarrierTakeManyKernel(KernelInit& init) {
    int64_t timeout_ms = -1;
    init.Attr("allow_small_batch", &allow_small_batch_);
    init.Attr("timeout_ms", &timeout_ms);
    if (timeout_ms != -1) init.Fail(InvalidArgument("Timeout not supported yet."));
  }
  bool is_recorded() const override { return true; }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<Barrier>> barrier = ctx.resource<Barrier>(0);
    if (!barrier.ok()) return done(barrier.status());
    if (ctx.node().output_types().subspan(2) != absl::MakeConstSpan((*barrier)->options().types)) {
      return done(InvalidArgument("Signature mismatch: barrier ", (*barrier)->options().name,
                                  " has other components than this node takes"));
    }
    if (ctx.input(1).rank() != 0) {
      return done(InvalidArgument("num_elements must be a scalar, got shape ", ctx.input(1).shape().ToString()));
    }
    (*barrier)->TakeMany(CallingOp(ctx), ctx.input(1).scalar<int32_t>(), allow_small_batch_,
                         [&ctx, done = std::move(done)](StatusOr<std::vector<Tensor>> taken) mutable {
                           if (!taken.ok()) return done(taken.status());
                           for (size_t i = 0; i < taken->size(); ++i) {
                             ctx.SetOutput(static_cast<int>(i), std::move((*taken)[i]));
                           }
                           done(absl::OkStatus());
                         });
  }

 private:
  bool allow_small_batch_ = false;
};

class BarrierCloseKernel : public Kernel {
 public:
  explicit BarrierCloseKernel(KernelInit& init) { init.Attr("cancel_pending_enqueues", &cancel_pending_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Barrier> barrier, ctx.resource<Barrier>(0));
    return barrier->Close(CallingOp(ctx), cancel_pending_);
  }

 private:
  bool cancel_pending_ = false;
};

template <bool kReady>
class BarrierSizeKernel : public Kernel {
 public:
  explicit BarrierSizeKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Barrier> barrier, ctx.resource<Barrier>(0));
    const int64_t size = kReady ? barrier->ready_size() : barrier->incomplete_size();
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(size)));
    return absl::OkStatus();
  }
};

Status InsertManyShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(2, 1).status());
  return NoOutputs(c);
}

Status TakeManyShape(ShapeContext& c) {
  c.set_output(0, PartialShape({PartialShape::kUnknown}));
  c.set_output(1, PartialShape({PartialShape::kUnknown}));
  return absl::OkStatus();
}

MILLRACE_OP(Barrier)
    .Output("handle: Ref(string)")
    .Attr("component_types: list(type) >= 1")
    .Attr("shapes: list(shape) >= 0 = []")
    .Attr("capacity: int = -1")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Collects the components of elements by key.");

MILLRACE_OP(BarrierInsertMany)
    .Input("handle: Ref(string)")
    .Input("keys: string")
    .Input("values: T")
    .Attr("T: type")
    .Attr("component_index: int")
    .Shape(InsertManyShape)
    .NotDifferentiable()
    .Summary("Inserts one component of several elements.");

MILLRACE_OP(BarrierTakeMany)
    .Input("handle: Ref(string)")
    .Input("num_elements: int32")
    .Output("indices: int64")
    .Output("keys: string")
    .Output("values: component_types")
    .Attr("component_types: list(type) >= 1")
    .Attr("allow_small_batch: bool = false")
    .Attr("wait_for_incomplete: bool = false")
    .Attr("timeout_ms: int = -1")
    .Shape(TakeManyShape)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("Takes complete elements.");

MILLRACE_OP(BarrierClose)
    .Input("handle: Ref(string)")
    .Attr("cancel_pending_enqueues: bool = false")
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("Closes a barrier to new keys.");

MILLRACE_OP(BarrierReadySize)
    .Input("handle: Ref(string)")
    .Output("size: int32")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The number of complete elements.");

MILLRACE_OP(BarrierIncompleteSize)
    .Input("handle: Ref(string)")
    .Output("size: int32")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The number of incomplete elements.");

MILLRACE_KERNEL(Barrier, kCpu, BarrierKernel);
MILLRACE_KERNEL(BarrierInsertMany, kCpu, InsertManyKernel);
MILLRACE_KERNEL(BarrierTakeMany, kCpu, BarrierTakeManyKernel);
MILLRACE_KERNEL(BarrierClose, kCpu, BarrierCloseKernel);
MILLRACE_KERNEL(BarrierReadySize, kCpu, BarrierSizeKernel<true>);
MILLRACE_KERNEL(BarrierIncompleteSize, kCpu, BarrierSizeKernel<false>);

}  // namespace
}  // namespace millrace
