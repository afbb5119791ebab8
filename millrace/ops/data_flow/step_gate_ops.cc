// The ops of a StepGate. Programs use them through train/sync/bounded_staleness.h.
#include <cmath>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/ops/data_flow/step_gate.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The maximum in a graph: each worker takes some memory.
constexpr int64_t kMaxWorkers = 1 << 20;

class StepGateKernel : public Kernel {
 public:
  explicit StepGateKernel(KernelInit& init) : source_(init) {
    options_.name = source_.name();
    init.Attr("num_workers", &options_.num_workers);
    init.Attr("staleness", &options_.staleness);
    if (options_.num_workers < 1 || options_.num_workers > kMaxWorkers) {
      init.Fail(InvalidArgument("num_workers must be from 1 to ", kMaxWorkers, ", but is ", options_.num_workers));
    }
  }

  Status Compute(KernelContext& ctx) override {
    return source_.Emit(
        ctx, [this]() -> StatusOr<RefPtr<StepGate>> { return MakeRef<StepGate>(options_); },
        [this](const StepGate& found) {
          const StepGate::Options& has = found.options();
          if (has.num_workers == options_.num_workers && has.staleness == options_.staleness) return absl::OkStatus();
          return InvalidArgument("step gate '", has.name, "' is of ", has.num_workers, " workers and staleness ",
                                 has.staleness, ", not of ", options_.num_workers, " and ", options_.staleness,
                                 ": all workers must say the same");
        });
  }

 private:
  ResourceSource<StepGate> source_;
  StepGate::Options options_;
};

StatusOr<int64_t> WorkerInput(const KernelContext& ctx) {
  const Tensor& worker = ctx.input(1);
  if (worker.rank() != 0) return InvalidArgument("worker must be a scalar, but has shape ", worker.shape().ToString());
  return worker.scalar<int64_t>();
}

class PassKernel : public AsyncKernel {
 public:
  explicit PassKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<StepGate>> gate = ctx.resource<StepGate>(0);
    if (!gate.ok()) return done(gate.status());
    const StatusOr<int64_t> worker = WorkerInput(ctx);
    if (!worker.ok()) return done(worker.status());
    (*gate)->Pass(CallingOp(ctx), *worker, [&ctx, done = std::move(done)](StatusOr<int64_t> steps) mutable {
      if (steps.ok()) ctx.SetOutput(0, Tensor::Scalar<int64_t>(*steps));
      done(steps.status());
    });
  }
};

class JoinKernel : public Kernel {
 public:
  explicit JoinKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<StepGate> gate, ctx.resource<StepGate>(0));
    MR_ASSIGN_OR_RETURN(const int64_t worker, WorkerInput(ctx));
    MR_ASSIGN_OR_RETURN(const int64_t steps, gate->Join(CallingOp(ctx), worker));
    ctx.SetOutput(0, Tensor::Scalar<int64_t>(steps));
    return absl::OkStatus();
  }
};

class LeaveKernel : public Kernel {
 public:
  explicit LeaveKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<StepGate> gate, ctx.resource<StepGate>(0));
    MR_ASSIGN_OR_RETURN(const int64_t worker, WorkerInput(ctx));
    return gate->Leave(CallingOp(ctx), worker);
  }
};

class KeepAliveKernel : public Kernel {
 public:
  explicit KeepAliveKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<StepGate> gate, ctx.resource<StepGate>(0));
    MR_ASSIGN_OR_RETURN(const int64_t worker, WorkerInput(ctx));
    const Tensor& seconds = ctx.input(2);
    if (seconds.rank() != 0 || !(seconds.scalar<double>() > 0)) {
      return InvalidArgument("lease_seconds must be a positive number, but is ", seconds.DebugString());
    }
    MR_ASSIGN_OR_RETURN(const std::vector<bool> take_part,
                        gate->KeepAlive(CallingOp(ctx), worker, absl::Seconds(seconds.scalar<double>())));
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, Shape({static_cast<int64_t>(take_part.size())})));
    std::copy(take_part.begin(), take_part.end(), output->flat<bool>().begin());
    return absl::OkStatus();
  }
};

class StepsKernel : public Kernel {
 public:
  explicit StepsKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<StepGate> gate, ctx.resource<StepGate>(0));
    const std::vector<int64_t> steps = gate->steps();
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, Shape({static_cast<int64_t>(steps.size())})));
    std::copy(steps.begin(), steps.end(), output->flat<int64_t>().begin());
    return absl::OkStatus();
  }
};

Status WorkerShape(ShapeContext& c) { return c.WithRank(1, 0).status(); }
Status OneStepShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(WorkerShape(c));
  return ScalarShape(c);
}
Status NoneShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(WorkerShape(c));
  return NoOutputs(c);
}
Status EachShape(ShapeContext& c) {
  c.set_output(0, PartialShape({PartialShape::kUnknown}));
  return absl::OkStatus();
}

MILLRACE_OP(MillraceStepGate)
    .Output("gate: resource")
    .Attr("num_workers: int >= 1")
    .Attr("staleness: int = 0")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Bounded staleness: no worker gets further ahead of the slowest one than the staleness.");
MILLRACE_OP(MillraceStepGatePass)
    .Input("gate: resource")
    .Input("worker: int64")
    .Output("steps: int64")
    .Stateful()
    .Shape(OneStepShape)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("Records a finished step of the worker and waits until it may begin another.");
MILLRACE_OP(MillraceStepGateJoin)
    .Input("gate: resource")
    .Input("worker: int64")
    .Output("steps: int64")
    .Stateful()
    .Shape(OneStepShape)
    .NotDifferentiable()
    .Summary("Adds a worker, with the step count of the slowest of the others.");
MILLRACE_OP(MillraceStepGateLeave)
    .Input("gate: resource")
    .Input("worker: int64")
    .Stateful()
    .Shape(NoneShape)
    .NotDifferentiable()
    .Summary("Removes a worker; the others no longer wait for it.");
MILLRACE_OP(MillraceStepGateKeepAlive)
    .Input("gate: resource")
    .Input("worker: int64")
    .Input("lease_seconds: double")
    .Output("take_part: bool")
    .Stateful()
    .Shape(EachShape)
    .NotDifferentiable()
    .Summary("Renews the worker's lease and deactivates workers whose lease has expired.");
MILLRACE_OP(MillraceStepGateSteps)
    .Input("gate: resource")
    .Output("steps: int64")
    .Stateful()
    .Shape(EachShape)
    .NotDifferentiable()
    .Summary("The number of steps that each worker has finished; -1 if it is inactive.");

MILLRACE_KERNEL(MillraceStepGate, kCpu, StepGateKernel);
MILLRACE_KERNEL(MillraceStepGatePass, kCpu, PassKernel);
MILLRACE_KERNEL(MillraceStepGateJoin, kCpu, JoinKernel);
MILLRACE_KERNEL(MillraceStepGateLeave, kCpu, LeaveKernel);
MILLRACE_KERNEL(MillraceStepGateKeepAlive, kCpu, KeepAliveKernel);
MILLRACE_KERNEL(MillraceStepGateSteps, kCpu, StepsKernel);

}  // namespace
}  // namespace millrace
