#include "millrace/ops/data_flow/accumulator.h"

#include <utility>

namespace millrace {

Accumulator::Accumulator(Options options)
    : options_(std::move(options)),
      label_(absl::StrCat("accumulator '", options_.name, "'")),
      sum_(options_.sparse ? GradientSum::Sparse(options_.dtype, options_.shape)
                           : GradientSum::Dense(options_.dtype, options_.shape)),
      takes_(label_, ResourceKind::kAccumulator) {}

Status Accumulator::Apply(const CallingOp& op, int64_t local_step, const GradientPart& gradient) {
  FinishedOps finished(op.step);
  Status status;
  op.Change([&] {
    MutexLock lock(&mu_);
    if (local_step < global_step_) {
      ++dropped_;
      return;
    }
    status = sum_->Add(gradient);
    if (!status.ok()) return;
    ++count_;
    takes_.Advance(&finished);
  });
  finished.Tell(nullptr);
  return status;
}

void Accumulator::Take(const CallingOp& op, int64_t num_required, TakeDone done) {
  if (num_required <= 0) {
    return done(InvalidArgument("Argument num_required must be positive, but was ", num_required));
  }
  auto taken = std::make_shared<std::vector<Tensor>>();
  Attempt attempt(op, "gradients of");
  attempt.run = [this, taken, num_required](Status* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (count_ < num_required) return Progress::kNone;
    StatusOr<std::vector<Tensor>> gathered = sum_->Take(options_.mean);
    if (!gathered.ok()) {
      *result = gathered.status();
      return Progress::kDone;
    }
    *taken = *std::move(gathered);
    count_ = 0;
    ++global_step_;
    return Progress::kDone;
  };
  attempt.cancelled = "TakeGrad operation was cancelled";
  attempt.done = [taken, done = std::move(done)](Status status) mutable {
    if (!status.ok()) return done(std::move(status));
    done(std::move(*taken));
  };
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    takes_.Join(
        std::move(attempt), &finished, [this](int64_t id) { return [self = ShareRef(this), id] { self->Cancel(id); }; },
        [this, num_required] {
          return [self = ShareRef(this), num_required](Wait* wait) { self->DescribeTake(num_required, wait); };
        });
  });
  finished.Tell(op.step);
}

// "1 of 2 gradients for accumulator 'w' at step 812".
void Accumulator::DescribeTake(int64_t num_required, Wait* wait) const {
  MutexLock lock(&mu_);
  wait->has = count_;
  wait->needs = num_required;
  wait->what = absl::StrCat(count_, " of ", num_required, " gradients for ", label_, " at step ", global_step_,
                            dropped_ > 0 ? absl::StrCat(" (", dropped_, " stale ones dropped)") : "");
}

void Accumulator::Cancel(int64_t id) {
  FinishedOps finished;
  {
    MutexLock lock(&mu_);
    // Takes behind it may need fewer gradients.
    if (takes_.Cancel(id, &finished)) takes_.Advance(&finished);
  }
  finished.Tell(nullptr);
}

void Accumulator::SetGlobalStep(const CallingOp& op, int64_t step) {
  op.Change([&] {
    MutexLock lock(&mu_);
    global_step_ = step;
  });
}

int64_t Accumulator::num_accumulated() const {
  MutexLock lock(&mu_);
  return count_;
}

int64_t Accumulator::num_dropped() const {
  MutexLock lock(&mu_);
  return dropped_;
}

std::string Accumulator::DebugString() const {
  MutexLock lock(&mu_);
  return absl::StrCat(label_, " of ", options_.sparse ? "rows of " : "", DTypeName(options_.dtype),
                      options_.shape.ToString(), ": ", count_, " gradients at step ", global_step_, ", ", dropped_,
                      " stale ones dropped, ", takes_.size(), " takes waiting");
}

}  // namespace millrace
