#include "millrace/runtime/blocked_ops.h"

#include <utility>

#include "millrace/runtime/wait_registry.h"

namespace millrace {
namespace {

// The depth of nested Tell calls on this thread.
thread_local int nested_tells = 0;
constexpr int kMaxNestedTells = 32;

}  // namespace

void CallingOp::Change(absl::FunctionRef<void()> change) const {
  if (step->resources == nullptr) return change();
  const Status changed = step->resources->Update(origin, [&] {
    change();
    return absl::OkStatus();
  });
  MR_CHECK(changed.ok());
}

void FinishedOps::Tell(const StepContext* own) {
  for (Attempt& a : attempts_) {
    // A concurrent cancellation will find the op gone, so there is no need to wait for it here; the cancelling thread
    // itself could not.
    CancellationManager* const cancellation = a.op.step->cancellation;
    if (a.token != 0 && !cancellation->IsCancelled()) cancellation->Deregister(a.token);
    if (a.wait != 0) a.op.step->waits->End(a.wait);
  }
  Attempt* mine = nullptr;
  for (Attempt& a : attempts_) {
    if (a.op.step == own && mine == nullptr) {
      mine = &a;
    } else if (Scheduler* const pool = a.op.step->inter_op; pool != nullptr) {
      EventThread::Closure go_on = [done = std::move(a.done), result = std::move(a.result),
                                    handover = ShareRef(a.op.step->handover)](EventThread* here) mutable {
        const ThreadHandover::Entry entry(std::move(handover), here);
        done(std::move(result));
      };
      if (by_) {
        by_->RunNext(pool, std::move(go_on));
      } else {
        pool->Schedule([go_on = std::move(go_on)]() mutable { go_on(nullptr); });
      }
    } else {
      a.done(std::move(a.result));
    }
  }
  if (mine == nullptr) return;
  // The continuation may call Tell again, without bound in a loop, so move to a new stack now and then.
  Scheduler* const pool = mine->op.step->inter_op;
  if (nested_tells >= kMaxNestedTells && pool != nullptr) {
    pool->Schedule(
        [done = std::move(mine->done), result = std::move(mine->result)]() mutable { done(std::move(result)); });
    return;
  }
  ++nested_tells;
  mine->done(std::move(mine->result));
  --nested_tells;
}

void FinishNow(const CallingOp& op, absl::AnyInvocable<void(Status)> done) {
  Attempt attempt(op, "");
  attempt.done = std::move(done);
  FinishedOps finished;
  finished.Add(std::move(attempt));
  finished.Tell(op.step);
}

bool WaitingLine::Advance(FinishedOps* finished) {
  bool changed = false;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto current = it++;
    const Progress progress = current->run(&current->result);
    changed |= progress != Progress::kNone;
    if (progress == Progress::kDone) {
      Leave(current, finished);
    } else if (order_ == Order::kFirstCome) {
      break;
    }
  }
  return changed;
}

bool WaitingLine::Join(Attempt attempt, FinishedOps* finished,
                       absl::FunctionRef<absl::AnyInvocable<void()>(int64_t id)> cancel,
                       absl::FunctionRef<WaitRegistry::Describer()> describe) {
  bool changed = false;
  if (waiting_.empty() || order_ == Order::kAny) {
    const Progress progress = attempt.run(&attempt.result);
    changed = progress != Progress::kNone;
    if (progress == Progress::kDone) {
      finished->Add(std::move(attempt));
      return changed;
    }
  }
  attempt.id = next_id_++;
  if (CancellationManager* const cancellation = attempt.op.step->cancellation; cancellation != nullptr) {
    attempt.token = cancellation->NewToken();
    if (!cancellation->Register(attempt.token, cancel(attempt.id))) {
      attempt.token = 0;
      if (attempt.undo) attempt.undo();
      attempt.result = absl::CancelledError(attempt.cancelled);
      finished->Add(std::move(attempt));
      return changed;
    }
  }
  if (WaitRegistry* const waits = attempt.op.step->waits; waits != nullptr) {
    attempt.wait = waits->Begin({.node = attempt.op.origin.node->name(),
                                 .what = absl::StrCat(attempt.waits_for, " ", resource_),
                                 .step_id = attempt.op.step->step_id,
                                 .kind = attempt.kind,
                                 .resource = resource_,
                                 .resource_kind = kind_},
                                describe());
  }
  waiting_.push_back(std::move(attempt));
  return changed;
}

bool WaitingLine::Cancel(int64_t id, FinishedOps* finished) {
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->id != id) continue;
    if (it->undo) it->undo();
    it->result = absl::CancelledError(it->cancelled);
    Leave(it, finished);
    return true;
  }
  return false;
}

void WaitingLine::FailAll(const Status& why, FinishedOps* finished) {
  while (!waiting_.empty()) {
    if (waiting_.front().undo) waiting_.front().undo();
    waiting_.front().result = why;
    Leave(waiting_.begin(), finished);
  }
}

void WaitingLine::Leave(std::list<Attempt>::iterator at, FinishedOps* finished) {
  finished->Add(std::move(*at));
  waiting_.erase(at);
}

}  // namespace millrace
