#include "millrace/ops/data_flow/accumulator.h"

#include <utility>

namespace millrace {

Accumulator::Accumulator(Options options)
    : options_(std::move(options)),
      label_(absl::StrCat("accumulator '", options_.name, "'")),
      sum_(options_.sparse ? GradientSum::Sparse(options_.dtype, options_.shape)
                           : GradientSum::Dense(options_.dtype, options_.shape)),
      shards_(options_.shards == 0
                  ? nullptr
                  : std::make_unique<ShardGradients>(options_.dtype, options_.shape, options_.sparse, options_.shards)),
      takes_(label_, ResourceKind::kAccumulator) {}

StatusOr<bool> Accumulator::Add(int64_t local_step, const GradientPart& gradient) {
  if (local_step < global_step_) return false;
  if (shards_ == nullptr) {
    MR_RETURN_IF_ERROR(sum_->Add(gradient));
    ++count_;
    return true;
  }
  if (std::exchange(is_new_, false)) global_step_ = local_step;
  return shards_->Add(local_step, gradient);
}

int64_t Accumulator::Count() const { return shards_ == nullptr ? count_ : shards_->count(global_step_); }

Status Accumulator::Apply(const CallingOp& op, int64_t local_step, const GradientPart& gradient) {
  FinishedOps finished(op.step);
  Status status;
  op.Change([&] {
    MutexLock lock(&mu_);
    const StatusOr<bool> added = Add(local_step, gradient);
    status = added.status();
    if (!status.ok()) return;
    if (*added) {
      takes_.Advance(&finished);
    } else {
      ++dropped_;
    }
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
    if (Count() < num_required) return Progress::kNone;
    StatusOr<std::vector<Tensor>> gathered =
        shards_ == nullptr ? sum_->Take(options_.mean) : shards_->Take(global_step_, options_.mean);
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

// "1 of 2 gradients for accumulator 'w' at step 812", or "6 of 8 shards (missing: 2, 3) for ...".
void Accumulator::DescribeTake(int64_t num_required, Wait* wait) const {
  MutexLock lock(&mu_);
  wait->has = Count();
  wait->needs = num_required;
  wait->what = absl::StrCat(
      wait->has, " of ", num_required,
      shards_ == nullptr ? " gradients" : absl::StrCat(" shards (missing: ", shards_->Missing(global_step_), ")"),
      " for ", label_, " at step ", global_step_,
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
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    const int64_t before = std::exchange(global_step_, step);
    is_new_ = false;
    if (shards_ == nullptr) return;
    shards_->MoveTo(step, step < before);
    takes_.Advance(&finished);
  });
  finished.Tell(nullptr);
}

void Accumulator::BeginAnew(const CallingOp& op, int64_t step) {
  {
    MutexLock lock(&mu_);
    if (count_ > 0) sum_->Take(/*mean=*/false).IgnoreError();
    count_ = 0;
    epoch_ = NewEpoch();
  }
  SetGlobalStep(op, step);
}

uint64_t Accumulator::epoch() const {
  MutexLock lock(&mu_);
  return epoch_;
}

bool Accumulator::has_begun() const {
  MutexLock lock(&mu_);
  return !is_new_;
}

int64_t Accumulator::num_accumulated() const {
  MutexLock lock(&mu_);
  return Count();
}

int64_t Accumulator::num_dropped() const {
  MutexLock lock(&mu_);
  return dropped_;
}

std::string Accumulator::DebugString() const {
  MutexLock lock(&mu_);
  return absl::StrCat(label_, " of ", options_.sparse ? "rows of " : "", DTypeName(options_.dtype),
                      options_.shape.ToString(), ": ", Count(),
                      shards_ == nullptr ? "" : absl::StrCat(" of ", options_.shards),
                      shards_ == nullptr ? " gradients at step " : " shards at step ", global_step_, ", ", dropped_,
                      " stale ones dropped, ", takes_.size(), " takes waiting");
}

}  // namespace millrace
