#include "millrace/runtime/once_kernel.h"

#include <utility>

#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/run_records.h"

namespace millrace {
namespace {

void Replay(const NodeOutcome& outcome, KernelContext& ctx) {
  for (size_t i = 0; i < outcome.outputs.size(); ++i) ctx.SetOutput(static_cast<int>(i), outcome.outputs[i]);
}

// Adds the outputs. `outcome` has the epochs from before the kernel ran: if one has ended meanwhile, a repetition does
// the work once more, rather than never in the new epoch.
NodeOutcome WithOutputs(NodeOutcome outcome, KernelContext& ctx) {
  for (int i = 0; i < ctx.num_outputs(); ++i) outcome.outputs.push_back(*ctx.mutable_output(i));
  return outcome;
}

NodeOutcome WithEpochs(const KernelContext& ctx) {
  const auto epochs = EpochsOfInputs(ctx);
  return {.epochs = {epochs.begin(), epochs.end()}};
}

class OnceKernel : public Kernel {
 public:
  explicit OnceKernel(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}

  bool is_async() const override { return kernel_->is_async(); }
  bool is_expensive() const override { return kernel_->is_expensive(); }
  bool is_recorded() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    RunRecord* const run = ctx.step().run;
    if (run == nullptr) return kernel_->Compute(ctx);
    const RunRecord::Execution execution = run->Enter(ExecutionKey(ctx));
    if (execution.earlier && IsOfThisEpoch(*execution.earlier, ctx)) {
      Replay(*execution.earlier, ctx);
      return absl::OkStatus();
    }
    NodeOutcome outcome = WithEpochs(ctx);
    MR_RETURN_IF_ERROR(kernel_->Compute(ctx));
    run->Complete(execution, WithOutputs(std::move(outcome), ctx));
    return absl::OkStatus();
  }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    RunRecord* const run = ctx.step().run;
    if (run == nullptr) return kernel_->ComputeAsync(ctx, std::move(done));
    RunRecord::Execution execution = run->Enter(ExecutionKey(ctx));
    if (execution.earlier && IsOfThisEpoch(*execution.earlier, ctx)) {
      Replay(*execution.earlier, ctx);
      return done(absl::OkStatus());
    }
    kernel_->ComputeAsync(ctx, [&ctx, run, execution = std::move(execution), outcome = WithEpochs(ctx),
                                done = std::move(done)](Status status) mutable {
      if (status.ok()) run->Complete(execution, WithOutputs(std::move(outcome), ctx));
      done(std::move(status));
    });
  }

 private:
  const std::unique_ptr<Kernel> kernel_;
};

}  // namespace

std::unique_ptr<Kernel> RunOnce(std::unique_ptr<Kernel> kernel) {
  return std::make_unique<OnceKernel>(std::move(kernel));
}

}  // namespace millrace
