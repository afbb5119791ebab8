// Collective operations on tensors by name. Programs use them through strategy/horovod.h.
#include "millrace/runtime/named_collectives.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "millrace/base/cancellation.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {
namespace {

// The gradient of a sum of all ranks' tensors is the sum of all ranks' gradients; so it is for the mean.
Status AllreduceGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const std::string reduction, c.Attr<std::string>("reduction"));
  if (reduction != "sum" && reduction != "mean")
    return Unimplemented("the ", reduction, " of all ranks has no gradient; the sum and the mean have");
  c.set_input_grad(0, c.Op("MillraceAllreduce", {c.grad()}, c.CopyAttrs({"reduction", "group"})));
  return absl::OkStatus();
}

// All ranks' gradients go to the root, whose tensor they all have got.
Status BroadcastGradient(GradientContext& c) {
  AttrList attrs = c.CopyAttrs({"group"});
  const Endpoint sum = c.Op("MillraceAllreduce", {c.grad()}, attrs);
  MR_ASSIGN_OR_RETURN(const int64_t root, c.Attr<int64_t>("root_rank"));
  const Endpoint rank = c.Op("MillraceRank", {}, std::move(attrs));
  const Endpoint is_root = c.Op("Equal", {rank, c.Scalar(static_cast<int32_t>(root))});
  c.set_input_grad(0, c.Op("Mul", {sum, c.Op("Cast", {is_root}, {{"DstT", c.node()->output_type(0)}})}));
  return absl::OkStatus();
}

Status AnyRowsShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape rows, c.WithRankAtLeast(0, 1));
  if (rows.known_rank()) rows.set_dim(0, PartialShape::kUnknown);
  c.set_output(0, std::move(rows));
  return absl::OkStatus();
}

MILLRACE_OP(MillraceAllreduce)
    .Input("tensor: T")
    .Output("result: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, uint64}")
    .Attr("reduction: {'sum', 'mean', 'min', 'max', 'product'} = 'sum'")
    .Attr("group: string = ''")
    .Stateful()
    .Shape(UnchangedShape)
    .Gradient(AllreduceGradient)
    .Trait(OpTrait::kWaits)
    .Summary("The sum, mean, minimum, maximum or product of the tensors of all ranks.");
MILLRACE_OP(MillraceAllgather)
    .Input("tensor: T")
    .Output("result: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, uint64, bool}")
    .Attr("group: string = ''")
    .Stateful()
    .Shape(AnyRowsShape)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("The tensors of all ranks, joined along the first dimension by rank.");
MILLRACE_OP(MillraceBroadcast)
    .Input("tensor: T")
    .Output("result: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, uint64, bool}")
    .Attr("root_rank: int")
    .Attr("group: string = ''")
    .Stateful()
    .Shape(UnchangedShape)
    .Gradient(BroadcastGradient)
    .Trait(OpTrait::kWaits)
    .Summary("The tensor of the root rank, on all ranks.");

MILLRACE_OP(MillraceRank)
    .Output("rank: int32")
    .Attr("group: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The number of this process among those of MillraceAllreduce.");

class RankKernel : public Kernel {
 public:
  explicit RankKernel(KernelInit& init) { init.Attr("group", &group_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<NamedCollectives> collectives, NamedCollectives::Find(group_));
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(collectives->rank()));
    return absl::OkStatus();
  }

 private:
  std::string group_;
};

// Between the operation, which cannot be taken back, and the step, which may be cancelled meanwhile.
class Submission {
 public:
  Submission(KernelContext& ctx, Kernel::Done done) : ctx_(&ctx), done_(std::move(done)) {}

  // Begins the wait. False if the step was cancelled already; `done` has then been called.
  static bool Begin(const std::shared_ptr<Submission>& self, const std::string& what) {
    const StepContext& step = self->ctx_->step();
    if (step.waits != nullptr) {
      self->waits_ = step.waits;
      self->wait_ = step.waits->Begin(self->ctx_->node().name(), what, step.step_id);
    }
    if (step.cancellation == nullptr) return true;
    self->cancellation_ = step.cancellation;
    self->token_ = step.cancellation->NewToken();
    const bool registered = step.cancellation->Register(
        self->token_, [self] { self->End(absl::CancelledError("the wait for the other ranks was cancelled")); });
    if (!registered) self->End(absl::CancelledError("the step was cancelled"));
    return registered;
  }

  void OnResult(const std::shared_ptr<Submission>& self, StatusOr<Tensor> result) {
    // If the step was cancelled first, it is over, and so may be what it lent.
    if (taken_.exchange(true)) return;
    if (cancellation_ != nullptr) cancellation_->Deregister(token_);
    // The thread that carries out operations does not run the rest of the step.
    Scheduler* const threads = ctx_->step().inter_op;
    if (threads == nullptr) return Finish(std::move(result));
    threads->Schedule([self, result = std::move(result)]() mutable { self->Finish(std::move(result)); });
  }

 private:
  void End(Status why) {
    if (!taken_.exchange(true)) Finish(std::move(why));
  }
  void Finish(StatusOr<Tensor> result) {
    if (wait_ != 0) waits_->End(wait_);
    // A rank that is lost stays lost: not an error that a new session recovers from.
    if (absl::IsUnavailable(result.status()) || absl::IsAborted(result.status()))
      result = Internal(result.status().message());
    if (result.ok()) ctx_->SetOutput(0, *std::move(result));
    Kernel::Done done = std::move(done_);
    done(result.status());
  }

  KernelContext* const ctx_;  // valid until `done_` is called
  Kernel::Done done_;
  std::atomic<bool> taken_{false};
  CancellationManager* cancellation_ = nullptr;
  CancellationManager::Token token_ = 0;
  WaitRegistry* waits_ = nullptr;
  uint64_t wait_ = 0;
};

template <NamedCollective::Kind kind>
class NamedCollectiveKernel : public AsyncKernel {
 public:
  explicit NamedCollectiveKernel(KernelInit& init) {
    init.Attr("group", &group_);
    if (kind == NamedCollective::Kind::kAllreduce) init.Attr("reduction", &reduction_);
    if (kind == NamedCollective::Kind::kBroadcast) init.Attr("root_rank", &root_);
    if (root_ < 0) init.Fail(InvalidArgument("root_rank is ", root_));
  }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<std::shared_ptr<NamedCollectives>> collectives = NamedCollectives::Find(group_);
    if (!collectives.ok()) return done(collectives.status());
    StatusOr<Tensor> tensor = Own(ctx);
    if (!tensor.ok()) return done(tensor.status());
    NamedCollective operation{.kind = kind,
                              .name = ctx.node().name(),
                              .tensor = *std::move(tensor),
                              .reduction = reduction_,
                              .root = static_cast<int>(root_)};
    auto submission = std::make_shared<Submission>(ctx, std::move(done));
    if (!Submission::Begin(submission, "the other ranks")) return;
    (*collectives)->Submit(std::move(operation), [submission](StatusOr<Tensor> result) {
      submission->OnResult(submission, std::move(result));
    });
  }

 private:
  // The tensor in memory that the operation may overwrite with its result: the input's own if nobody else needs it.
  static StatusOr<Tensor> Own(KernelContext& ctx) {
    const Tensor& input = ctx.input(0);
    if (kind == NamedCollective::Kind::kAllgather) return input;
    const void* const from = input.raw_data();
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.ForwardOrAllocateOutput({0}, 0, input.shape()));
    Tensor own = std::move(*output);
    if (own.raw_data() != from && own.TotalBytes() > 0) std::memcpy(own.raw_data(), from, own.TotalBytes());
    return own;
  }

  std::string group_;
  std::string reduction_ = "sum";
  int64_t root_ = 0;
};

MILLRACE_KERNEL(MillraceAllreduce, kCpu, NamedCollectiveKernel<NamedCollective::Kind::kAllreduce>);
MILLRACE_KERNEL(MillraceAllgather, kCpu, NamedCollectiveKernel<NamedCollective::Kind::kAllgather>);
MILLRACE_KERNEL(MillraceBroadcast, kCpu, NamedCollectiveKernel<NamedCollective::Kind::kBroadcast>);

MILLRACE_KERNEL(MillraceRank, kCpu, RankKernel);

}  // namespace
}  // namespace millrace
