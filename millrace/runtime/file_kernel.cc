#include "millrace/runtime/file_kernel.h"

#include <atomic>
#include <utility>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/exception_status.h"
#include "millrace/base/thread_group.h"
#include "millrace/base/timer.h"

namespace millrace {
namespace {

// The time that a cancelled operation has to end by itself.
constexpr absl::Duration kGrace = absl::Seconds(1);

// "ReadFile of '/data/a'".
std::string WhatItDoes(const KernelContext& ctx) {
  std::string what = ctx.node().type();
  if (ctx.num_inputs() > 0 && ctx.input(0).dtype() == DType::kString && ctx.input(0).num_elements() > 0)
    absl::StrAppend(&what, " of '", ctx.input(0).data<std::string>()[0], "'");
  return what;
}

// The rest of the step does not run on a thread for files.
void CallOnStepsThread(Scheduler* threads, Kernel::Done done, Status status) {
  if (threads == nullptr) return done(std::move(status));
  threads->Schedule(
      [done = std::move(done), status = std::move(status)]() mutable { std::exchange(done, nullptr)(status); });
}

}  // namespace

// One execution. Owns all that the kernel uses, because the step may end before it.
struct FileKernel::Operation : std::enable_shared_from_this<Operation> {
  Operation(const FileKernel* kernel, KernelContext& caller, Done done)
      : kernel(kernel),
        owner(*caller.step().owner),
        threads(caller.step().file_threads->shared_from_this()),
        step(caller.step().Detached(&cancellation, nullptr)),
        outputs(static_cast<size_t>(caller.num_outputs())),
        ctx(caller),
        caller(&caller),
        done(std::move(done)) {
    for (int i = 0; i < caller.num_inputs(); ++i) inputs.push_back(caller.input(i));
    for (const Tensor& input : inputs) pointers.push_back(&input);
    KernelContextAccess access(ctx);
    access.Set(&caller.node(), caller.device(), Allocator::Heap(), &step);
    access.SetInputs(pointers.data(), caller.num_inputs(), 0);
    access.SetOutputs(outputs.data(), caller.num_outputs());
  }

  void Start() {
    CancellationManager* const steps = caller->cancellation();
    if (steps != nullptr) {
      token = steps->NewToken();
      if (!steps->Register(token, [self = shared_from_this()] { self->OnCancel(); })) {
        return CallOnStepsThread(caller->step().inter_op, std::move(done), steps->status());
      }
    }
    if (kernel->is_long()) Watch();
    // Ends the node if the work is dropped instead of run.
    std::shared_ptr<void> dropped(nullptr, [self = shared_from_this()](void*) {
      self->End(Unavailable("the system has no thread for an operation on files"));
    });
    threads->Run({.node = caller->node().name(),
                  .what = WhatItDoes(ctx),
                  .step_id = step.step_id,
                  .is_long = kernel->is_long(),
                  .progress = progress,
                  .run = [self = shared_from_this(), dropped = std::move(dropped)] { self->Run(); }});
  }

  // Looks from time to time whether long work still does something.
  void Watch() {
    threads->timers()->Schedule(threads->stall_timeout() / 4, [weak = weak_from_this()] {
      const std::shared_ptr<Operation> self = weak.lock();
      if (self == nullptr || self->ended) return;
      const int64_t last = self->progress->load(std::memory_order_relaxed);
      const absl::Duration still = Clock::Real()->Now() - absl::FromUnixNanos(last);
      if (last == 0 || still < self->threads->stall_timeout()) return self->Watch();
      const Status stuck = DeadlineExceeded(WhatItDoes(self->ctx), " has not moved for ",
                                            absl::FormatDuration(absl::Trunc(still, absl::Milliseconds(100))),
                                            ": the disk does not answer");
      self->cancellation.StartCancel(stuck);
      self->End(stuck);
    });
  }

  void Run() {
    if (cancellation.IsCancelled()) return End(cancellation.status());
    End(CatchExceptions([&] { return kernel->ComputeFiles(ctx); }));
  }

  void OnCancel() {
    cancellation.StartCancel(caller->cancellation()->status());
    threads->timers()->Schedule(kGrace, [self = shared_from_this()] { self->End(self->cancellation.status()); });
  }

  // The first call ends the node.
  void End(const Status& status) {
    if (ended.exchange(true)) return;
    CancellationManager* const steps = caller->cancellation();
    Scheduler* const rest = caller->step().inter_op;
    if (status.ok()) {
      for (int i = 0; i < caller->num_outputs(); ++i) caller->SetOutput(i, std::move(outputs[static_cast<size_t>(i)]));
    }
    // Afterwards the callback does not run any more, and the step may end.
    if (steps != nullptr) steps->Deregister(token);
    CallOnStepsThread(rest, std::move(done), status);
  }

  const FileKernel* const kernel;
  const std::shared_ptr<const void> owner;  // of the kernel and its node
  const std::shared_ptr<FileThreads> threads;
  CancellationManager cancellation;
  const StepContext step;
  std::vector<Tensor> inputs;
  std::vector<const Tensor*> pointers;
  std::vector<Tensor> outputs;
  KernelContext ctx;

  // Valid until `done`.
  KernelContext* const caller;
  Done done;
  CancellationManager::Token token = 0;
  std::atomic<bool> ended{false};
  const std::shared_ptr<FileProgress> progress = std::make_shared<FileProgress>(0);
};

void FileKernel::ComputeAsync(KernelContext& ctx, Done done) {
  const StepContext& step = ctx.step();
  if (step.file_threads != nullptr && step.owner != nullptr)
    return std::make_shared<Operation>(this, ctx, std::move(done))->Start();
  step.HandOver();
  if (step.inter_op == nullptr) return done(ComputeFiles(ctx));
  if (!is_long()) {
    step.inter_op->Schedule(
        [this, &ctx, done = std::move(done)]() mutable { done(CatchExceptions([&] { return ComputeFiles(ctx); })); });
    return;
  }
  auto shared = std::make_shared<Done>(std::move(done));
  const bool started = StartDetachedThread("files", [this, &ctx, shared] {
    Status status = CatchExceptions([&] { return ComputeFiles(ctx); });
    CallOnStepsThread(ctx.step().inter_op, std::move(*shared), std::move(status));
  });
  if (!started) (*shared)(Unavailable("the system has no thread for an operation on files"));
}

void RunWhereItMayBlock(const StepContext& step, const Node& node, std::string what, absl::AnyInvocable<void()> work) {
  if (step.file_threads == nullptr) {
    step.HandOver();
    return work();
  }
  step.file_threads->Run(
      {.node = node.name(), .what = std::move(what), .step_id = step.step_id, .run = std::move(work)});
}

}  // namespace millrace
