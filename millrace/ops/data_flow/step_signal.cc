// Tells workers which step has begun. Programs use it through train/sync/sync_replicas_optimizer.h.
#include <utility>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/runtime/blocked_ops.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Has the number of a step, -1 at first. Thread-safe.
class StepSignal : public Resource {
 public:
  static constexpr char kTypeName[] = "millrace::StepSignal";
  using AwaitDone = absl::AnyInvocable<void(StatusOr<int64_t>)>;

  explicit StepSignal(std::string name)
      : label_(absl::StrCat("step signal '", name, "'")),
        waiting_(label_, ResourceKind::kTokenQueue, WaitingLine::Order::kAny) {}

  // Calls `done` with the step once it is later than `step`. OUT_OF_RANGE if the signal is closed; ABORTED if the step
  // is, or becomes, an earlier one than `step`: what the caller has done so far is void.
  void Await(const CallingOp& op, int64_t step, AwaitDone done) {
    auto now = std::make_shared<int64_t>(0);
    Attempt attempt(op, "a step of");
    attempt.run = [this, step, now](Status* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      *now = step_;
      if (step_ > step) return Progress::kDone;
      if (step_ < step) {
        *result = Aborted(label_, ": the training went back to step ", step_, ", and this was step ", step);
      } else if (closed_) {
        *result = OutOfRange("the training has ended at step ", step_, ": ", why_);
      } else {
        return Progress::kNone;
      }
      return Progress::kDone;
    };
    attempt.cancelled = "the wait for the next step was cancelled";
    attempt.done = [now, done = std::move(done)](Status status) mutable {
      if (!status.ok()) return done(std::move(status));
      done(*now);
    };
    FinishedOps finished(op.step);
    op.Change([&] {
      MutexLock lock(&mu_);
      waiting_.Join(
          std::move(attempt), &finished,
          [this](int64_t id) { return [self = ShareRef(this), id] { self->Cancel(id); }; },
          [this, step] {
            return [self = ShareRef(this), step](Wait* wait) {
              wait->what = absl::StrCat("the update of step ", step, " at ", self->label_);
            };
          });
    });
    finished.Tell(op.step);
  }

  // Also opens a closed signal.
  void Set(const CallingOp& op, int64_t step) {
    Change(op, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      step_ = step;
      closed_ = false;
    });
  }
  void Close(const CallingOp& op, const std::string& why) {
    Change(op, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      if (!std::exchange(closed_, true)) why_ = why;
    });
  }

  std::string DebugString() const override {
    MutexLock lock(&mu_);
    return absl::StrCat(label_, " at step ", step_, closed_ ? ", closed" : "", ", ", waiting_.size(), " waiting");
  }

 private:
  void Change(const CallingOp& op, absl::FunctionRef<void()> change) {
    FinishedOps finished(op.step);
    op.Change([&] {
      MutexLock lock(&mu_);
      change();
      waiting_.Advance(&finished);
    });
    finished.Tell(nullptr);
  }
  void Cancel(int64_t id) {
    FinishedOps finished;
    {
      MutexLock lock(&mu_);
      waiting_.Cancel(id, &finished);
    }
    finished.Tell(nullptr);
  }

  const std::string label_;
  mutable Mutex mu_;
  int64_t step_ ABSL_GUARDED_BY(mu_) = -1;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::string why_ ABSL_GUARDED_BY(mu_);
  WaitingLine waiting_ ABSL_GUARDED_BY(mu_);
};

class StepSignalKernel : public Kernel {
 public:
  explicit StepSignalKernel(KernelInit& init) : source_(init) {}
  Status Compute(KernelContext& ctx) override {
    return source_.Emit(
        ctx, [this]() -> StatusOr<RefPtr<StepSignal>> { return MakeRef<StepSignal>(source_.name()); },
        [](const StepSignal&) { return absl::OkStatus(); });
  }

 private:
  ResourceSource<StepSignal> source_;
};

StatusOr<int64_t> SignalStepInput(const KernelContext& ctx) {
  const Tensor& step = ctx.input(1);
  if (step.rank() != 0) return InvalidArgument("step must be a scalar, but has shape ", step.shape().ToString());
  return step.scalar<int64_t>();
}

class AwaitStepKernel : public AsyncKernel {
 public:
  explicit AwaitStepKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<StepSignal>> signal = ctx.resource<StepSignal>(0);
    if (!signal.ok()) return done(signal.status());
    const StatusOr<int64_t> step = SignalStepInput(ctx);
    if (!step.ok()) return done(step.status());
    (*signal)->Await(CallingOp(ctx), *step, [&ctx, done = std::move(done)](StatusOr<int64_t> now) mutable {
      if (now.ok()) ctx.SetOutput(0, Tensor::Scalar<int64_t>(*now));
      done(now.status());
    });
  }
};

class SetStepKernel : public Kernel {
 public:
  explicit SetStepKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<StepSignal> signal, ctx.resource<StepSignal>(0));
    MR_ASSIGN_OR_RETURN(const int64_t step, SignalStepInput(ctx));
    signal->Set(CallingOp(ctx), step);
    return absl::OkStatus();
  }
};

class CloseSignalKernel : public Kernel {
 public:
  explicit CloseSignalKernel(KernelInit& init) { init.Attr("why", &why_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<StepSignal> signal, ctx.resource<StepSignal>(0));
    signal->Close(CallingOp(ctx), why_);
    return absl::OkStatus();
  }

 private:
  std::string why_;
};

Status AwaitShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  return ScalarShape(c);
}
Status SetShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  return NoOutputs(c);
}

MILLRACE_OP(MillraceStepSignal)
    .Output("signal: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The number of the step that has begun, for ops that wait for it.");
MILLRACE_OP(MillraceStepSignalAwait)
    .Input("signal: resource")
    .Input("step: int64")
    .Output("now: int64")
    .Stateful()
    .Shape(AwaitShape)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("Waits for a later step than `step` and returns it.");
MILLRACE_OP(MillraceStepSignalSet)
    .Input("signal: resource")
    .Input("step: int64")
    .Stateful()
    .Shape(SetShape)
    .NotDifferentiable()
    .Summary("A step has begun.");
MILLRACE_OP(MillraceStepSignalClose)
    .Input("signal: resource")
    .Attr("why: string = ''")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("No further step will begin: waits end with OUT_OF_RANGE.");

MILLRACE_KERNEL(MillraceStepSignal, kCpu, StepSignalKernel);
MILLRACE_KERNEL(MillraceStepSignalAwait, kCpu, AwaitStepKernel);
MILLRACE_KERNEL(MillraceStepSignalSet, kCpu, SetStepKernel);
MILLRACE_KERNEL(MillraceStepSignalClose, kCpu, CloseSignalKernel);

}  // namespace
}  // namespace millrace
