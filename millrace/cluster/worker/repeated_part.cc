#include "millrace/cluster/worker/repeated_part.h"

#include <utility>

#include "millrace/cluster/worker/worker.h"

namespace millrace {

Scheduler* RepeatedPart::pool() const { return worker_->task().inter_op(); }

void RepeatedPart::GoOn() {
  const RefPtr<ThreadHandover>& handover = run_.handover;
  if (!handover) return pool()->Schedule([self = shared_from_this()] { self->Run(); });
  handover->RunNext(pool(), [self = shared_from_this()](EventThread* here) {
    const ThreadHandover::Entry entry(self->run_.handover, here);
    self->Run();
  });
}

void RepeatedPart::Start() {
  if (run_.run.given()) run_.run.number = run_.run.oldest = runs().BeginRepeating(run_.run);
  Run();
}

RunRecords& RepeatedPart::runs() const { return run_.graph->part.session->resources()->runs(); }

Status RepeatedPart::Count() {
  if (!run_.run.given()) return absl::OkStatus();
  run_.run.oldest = ++run_.run.number;
  return runs().GoOnRepeating(run_.run);
}

void RepeatedPart::Run() {
  step_.store(Step::kStarts);
  worker_->Run(run_, [self = shared_from_this()](PartResult result) {
    if (result.status.ok()) result.status = self->Count();
    if (!result.status.ok()) return self->done_(std::move(result));
    self->run_.from = nullptr;  // its handler will have ended when Run is next called
    // A run that had to wait continues on the thread that completed it.
    if (self->step_.exchange(Step::kEnded) == Step::kStarted) self->GoOn();
  });
  // A run that never waits would occupy this thread, and grow its stack, forever.
  if (step_.exchange(Step::kStarted) == Step::kEnded) pool()->Schedule([self = shared_from_this()] { self->Run(); });
}

}  // namespace millrace
