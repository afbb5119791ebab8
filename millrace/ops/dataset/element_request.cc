#include "millrace/ops/dataset/element_request.h"

#include <utility>

#include "millrace/runtime/wait_registry.h"

namespace millrace {

void ElementRequest::Start(KernelContext& ctx, DatasetWalk& walk, Options options, Kernel::Done done) {
  std::shared_ptr<ElementRequest>(new ElementRequest(ctx, std::move(options), std::move(done)))->StartOn(walk);
}

void ElementRequest::StartOn(DatasetWalk& walk) {
  CancellationManager* const cancellation = ctx_.cancellation();
  if (cancellation != nullptr) {
    token_ = cancellation->NewToken();
    if (!cancellation->Register(token_, [self = shared_from_this()] { self->GiveUp(); })) {
      return done_(cancellation->status());
    }
  }
  walk.Next(shared_from_this());
  NoteWait();
}

bool ElementRequest::Wanted() const {
  MutexLock lock(&mu_);
  return !ended_;
}

bool ElementRequest::Take(DatasetWalk::Answer& answer) {
  if (!End()) return false;
  // The step is valid until `done` is called, and nothing else can end the request now.
  if (CancellationManager* const cancellation = ctx_.cancellation(); cancellation != nullptr) {
    if (cancellation->IsCancelled()) ctx_.HandOver();  // it may have to wait for callbacks
    cancellation->Deregister(token_);
  }
  done_(options_.deliver(answer));
  return true;
}

void ElementRequest::GiveUp() {
  if (End()) done_(ctx_.cancellation()->status());
}

bool ElementRequest::End() {
  uint64_t wait;
  {
    MutexLock lock(&mu_);
    if (ended_) return false;
    ended_ = true;
    wait = std::exchange(wait_, 0);
  }
  if (wait != 0) ctx_.step().waits->End(wait);
  return true;
}

void ElementRequest::NoteWait() {
  MutexLock lock(&mu_);
  if (ended_ || ctx_.step().waits == nullptr) return;
  wait_ = ctx_.step().waits->Begin({.node = ctx_.node().name(),
                                    .what = absl::StrCat("the next element of ", options_.resource),
                                    .step_id = ctx_.step().step_id,
                                    .kind = Wait::Kind::kElements,
                                    .resource = options_.resource});
}

Status SetElementOutputs(KernelContext& ctx, std::vector<Tensor> element) {
  if (static_cast<int>(element.size()) != ctx.num_outputs()) {
    return InvalidArgument("an element has ", element.size(), " components, the node ", ctx.num_outputs(), " outputs");
  }
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    if (element[i].dtype() != ctx.output_type(i)) {
      return InvalidArgument("component ", i, " is ", element[i].dtype(), ", the node's output ", ctx.output_type(i));
    }
    ctx.SetOutput(i, std::move(element[i]));
  }
  return absl::OkStatus();
}

Status ComponentShapes(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes, c.Attr<std::vector<PartialShape>>("output_shapes"));
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return InvalidArgument("output_shapes has ", shapes.size(), " entries for ", c.num_outputs(), " outputs");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[i]);
  return absl::OkStatus();
}

}  // namespace millrace
