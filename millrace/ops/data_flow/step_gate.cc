#include "millrace/ops/data_flow/step_gate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"

namespace millrace {

StepGate::StepGate(Options options)
    : options_(std::move(options)),
      members_(options_.num_workers, Member{.heard_of = options_.clock->Now()}),
      passes_(absl::StrCat("step gate '", options_.name, "'"), ResourceKind::kStepGate, WaitingLine::Order::kAny) {}

Status StepGate::Check(int64_t worker) const {
  if (worker >= 0 && worker < options_.num_workers) return absl::OkStatus();
  return InvalidArgument("step gate '", options_.name, "' has no worker ", worker, ": it was made for ",
                         options_.num_workers);
}

int64_t StepGate::Slowest() const {
  int64_t slowest = -1;
  for (const Member& member : members_) {
    if (member.takes_part && (slowest < 0 || member.steps < slowest)) slowest = member.steps;
  }
  return slowest;
}

bool StepGate::MayPass(int64_t steps) const {
  return options_.staleness < 0 || Slowest() < 0 || Slowest() >= steps - options_.staleness;
}

// "worker 1 (9 of 12 steps) to come within 3 steps at step gate 'g'".
void StepGate::DescribePass(int64_t steps, Wait* wait) const {
  MutexLock lock(&mu_);
  const int64_t needed = steps - options_.staleness;
  std::vector<std::string> behind;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i].takes_part || members_[i].steps >= needed) continue;
    behind.push_back(absl::StrCat("worker ", i, " (", members_[i].steps, " of ", needed, " steps)"));
  }
  wait->has = Slowest();
  wait->needs = needed;
  wait->what = absl::StrCat(absl::StrJoin(behind, ", "), " to come within ", options_.staleness,
                            " steps at step gate '", options_.name, "'");
}

void StepGate::Pass(const CallingOp& op, int64_t worker, PassDone done) {
  if (Status status = Check(worker); !status.ok()) return done(std::move(status));
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    Member& member = members_[worker];
    if (!member.takes_part) JoinLocked(worker);
    member.heard_of = options_.clock->Now();
    const int64_t steps = ++member.steps;
    Attempt attempt(op, "the other workers at");
    attempt.run = [this, steps](Status*)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return MayPass(steps) ? Progress::kDone : Progress::kNone; };
    attempt.cancelled = "the wait for slower workers was cancelled";
    attempt.done = [steps, done = std::move(done)](Status status) mutable {
      if (!status.ok()) return done(std::move(status));
      done(steps);
    };
    passes_.Join(
        std::move(attempt), &finished, [this](int64_t id) { return [self = ShareRef(this), id] { self->Cancel(id); }; },
        [this, steps] { return [self = ShareRef(this), steps](Wait* wait) { self->DescribePass(steps, wait); }; });
    passes_.Advance(&finished);
  });
  finished.Tell(op.step);
}

void StepGate::Cancel(int64_t id) {
  FinishedOps finished;
  {
    MutexLock lock(&mu_);
    passes_.Cancel(id, &finished);
  }
  finished.Tell(nullptr);
}

int64_t StepGate::JoinLocked(int64_t worker) {
  Member& member = members_[worker];
  member.takes_part = false;
  const int64_t slowest = Slowest();
  // The only active worker continues from its own or the last leaver's count.
  if (slowest >= 0) member.steps = slowest;
  member.takes_part = true;
  member.heard_of = options_.clock->Now();
  return member.steps;
}

StatusOr<int64_t> StepGate::Join(const CallingOp& op, int64_t worker) {
  MR_RETURN_IF_ERROR(Check(worker));
  FinishedOps finished(op.step);
  int64_t steps = 0;
  op.Change([&] {
    MutexLock lock(&mu_);
    steps = JoinLocked(worker);
    passes_.Advance(&finished);
  });
  finished.Tell(nullptr);
  return steps;
}

Status StepGate::Leave(const CallingOp& op, int64_t worker) {
  MR_RETURN_IF_ERROR(Check(worker));
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    members_[worker].takes_part = false;
    passes_.Advance(&finished);
  });
  finished.Tell(nullptr);
  return absl::OkStatus();
}

StatusOr<std::vector<bool>> StepGate::KeepAlive(const CallingOp& op, int64_t worker, absl::Duration lease) {
  MR_RETURN_IF_ERROR(Check(worker));
  FinishedOps finished(op.step);
  std::vector<bool> take_part;
  op.Change([&] {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    if (members_[worker].takes_part) members_[worker].heard_of = now;
    for (Member& member : members_) {
      if (now - member.heard_of > lease) member.takes_part = false;
      take_part.push_back(member.takes_part);
    }
    passes_.Advance(&finished);
  });
  finished.Tell(nullptr);
  return take_part;
}

std::vector<int64_t> StepGate::steps() const {
  std::vector<int64_t> steps;
  MutexLock lock(&mu_);
  for (const Member& member : members_) steps.push_back(member.takes_part ? member.steps : -1);
  return steps;
}

std::string StepGate::DebugString() const {
  return absl::StrCat("step gate '", options_.name, "' of staleness ", options_.staleness, ": ",
                      absl::StrJoin(steps(), ", "), " steps");
}

}  // namespace millrace
