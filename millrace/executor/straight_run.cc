#include "millrace/executor/straight_run.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Processing inputs of this many bytes takes microseconds, much longer than giving up a run and taking it back.
constexpr size_t kLongInputs = 32 << 10;

}  // namespace

StraightRun::StraightRun(const Plan* plan, StraightPlan* straight)
    : plan_(plan), straight_(straight), slots_(plan->num_slots_), dead_(plan->nodes_.size(), 0) {
  plan->SetConstants(slots_.data());
}
StraightRun::~StraightRun() = default;

void StraightRun::Start(const Plan* plan, StraightPlan* straight, const RunArgs& args, absl::Span<Tensor> fetches,
                        absl::AnyInvocable<void(Status)> done) {
  std::unique_ptr<StraightRun> idle;
  {
    MutexLock lock(&straight->mu_);
    if (!straight->idle_.empty()) {
      idle = std::move(straight->idle_.back());
      straight->idle_.pop_back();
    }
  }
  StraightRun* const run = idle != nullptr ? idle.release() : new StraightRun(plan, straight);
  run->args_ = args;
  run->fetches_ = fetches;
  run->done_ = std::move(done);
  run->pending_ = straight->pending;
  run->uses_ = straight->uses;
  run->ready_ = straight->roots;
  run->posted_.store(nullptr, std::memory_order_relaxed);
  for (size_t i = 0; i < args.feeds.size(); ++i) run->slots_[plan->feed_slots_[i]] = args.feeds[i];
  if (args.stats != nullptr) run->RecordConstants();
  for (const int index : straight->async_roots) {
    if (!run->IsOver(index)) run->StartAsync(index);
  }
  run->Work();
}

void StraightRun::Work() {
  for (;;) {
    if (posted_.load(std::memory_order_relaxed) != nullptr) TakePosted();
    // After a failure nothing new starts.
    if (failed_.load(std::memory_order_relaxed)) ready_.clear();
    if (!ready_.empty()) {
      const int index = ready_.back();
      ready_.pop_back();
      if (!RunNode(index)) return;
    } else if (num_outstanding_ == 0) {
      return End();
    } else if (Leave()) {
      return;
    }
  }
}

bool StraightRun::RunNode(int index) {
  const PlanNode& n = plan_->nodes_[index];
  if (n.kernel == nullptr || (dead_[index] && !n.runs_dead)) {
    Finish(index);
    return true;
  }
  if (IsOver(index)) return true;
  if (n.is_async) {
    StartAsync(index);
    return true;
  }
  // Keep one expensive node for this thread and give the others to the pool.
  if (n.is_expensive && !ready_.empty() && args_.step->inter_op != nullptr) {
    GiveToPool(index);
    return true;
  }
  if (n.is_expensive) args_.step->HandOver();
  if (num_outstanding_ > 0 && MayTakeLong(index)) return RunApart(index);
  RunHere(index);
  return true;
}

bool StraightRun::IsOver(int index) {
  if (args_.step->cancellation != nullptr && args_.step->cancellation->IsCancelled()) {
    const PlanNode& n = plan_->nodes_[index];
    Fail(NodeError(*n.node, *n.device, args_.step->cancellation->status()));
  }
  return failed_.load(std::memory_order_relaxed);
}

void StraightRun::RunHere(int index) {
  const PlanNode& n = plan_->nodes_[index];
  const bool dead = dead_[index];
  const uint64_t forwardable = SetInputs(n, execution_);
  if (ABSL_PREDICT_FALSE(dead)) execution_.SetFrame(0, 0, true);
  const Status status = execution_.Run(n, args_, forwardable, slots_.data() + n.first_output);
  if (ABSL_PREDICT_FALSE(dead)) execution_.SetFrame(0, 0, false);
  if (ABSL_PREDICT_TRUE(status.ok())) return Finish(index);
  Fail(status);
}

void StraightRun::StartAsync(int index) {
  Outstanding* const node = NewOutstanding(index);
  const PlanNode& n = plan_->nodes_[index];
  node->execution.Start(n, args_, node->forwardable, slots_.data() + n.first_output, [node](const Status& status) {
    StraightRun* const run = node->run;
    if (run->Post(node, status)) run->Work();
  });
}

void StraightRun::GiveToPool(int index) {
  Outstanding* const node = NewOutstanding(index);
  args_.step->inter_op->Schedule([node] {
    StraightRun* const run = node->run;
    const PlanNode& n = run->plan_->nodes_[node->index];
    const Status status =
        run->failed_.load(std::memory_order_relaxed)
            ? absl::OkStatus()
            : node->execution.Run(n, run->args_, node->forwardable, run->slots_.data() + n.first_output);
    if (run->Post(node, status)) run->Work();
  });
}

bool StraightRun::RunApart(int index) {
  Outstanding* const node = NewOutstanding(index);
  while (!Leave()) TakePosted();
  const PlanNode& n = plan_->nodes_[index];
  const Status status = node->execution.Run(n, args_, node->forwardable, slots_.data() + n.first_output);
  return Post(node, status);
}

bool StraightRun::MayTakeLong(int index) const {
  if (straight_->info[index].may_take_long) return true;
  const PlanNode& n = plan_->nodes_[index];
  const int* const input_slots = plan_->input_slots_.data() + n.first_input;
  size_t bytes = 0;
  for (int k = 0; k < n.num_inputs; ++k) bytes += slots_[input_slots[k]].TotalBytes();
  return bytes >= kLongInputs;
}

uint64_t StraightRun::SetInputs(const PlanNode& n, KernelExecution& execution) const {
  const int* const input_slots = plan_->input_slots_.data() + n.first_input;
  const Tensor** const inputs = execution.RoomForInputs(n.num_inputs);
  uint64_t forwardable = 0;
  for (int k = 0; k < n.num_inputs; ++k) {
    inputs[k] = &slots_[input_slots[k]];
    // This is the last use: all others have been counted down.
    if (k < 64 && uses_[input_slots[k]] == 1) forwardable |= uint64_t{1} << k;
  }
  return forwardable;
}

StraightRun::Outstanding* StraightRun::NewOutstanding(int index) {
  Outstanding* node;
  if (idle_outstanding_.empty()) {
    all_outstanding_.push_back(std::make_unique<Outstanding>(this));
    node = all_outstanding_.back().get();
  } else {
    node = idle_outstanding_.back();
    idle_outstanding_.pop_back();
  }
  node->index = index;
  node->forwardable = SetInputs(plan_->nodes_[index], node->execution);
  node->execution.SetFrame(0, 0, dead_[index]);
  ++num_outstanding_;
  return node;
}

bool StraightRun::Post(Outstanding* node, const Status& status) {
  if (!status.ok()) Fail(status);
  Outstanding* last = posted_.load(std::memory_order_relaxed);
  do {
    node->next = last == Nobody() ? nullptr : last;
  } while (!posted_.compare_exchange_weak(last, node, std::memory_order_acq_rel, std::memory_order_relaxed));
  return last == Nobody();
}

bool StraightRun::Leave() {
  Outstanding* nothing = nullptr;
  return posted_.compare_exchange_strong(nothing, Nobody(), std::memory_order_acq_rel, std::memory_order_relaxed);
}

void StraightRun::TakePosted() {
  // The most recent comes first in the list, so the successors of the first to finish end up on top of the ready list.
  Outstanding* node = posted_.exchange(nullptr, std::memory_order_acquire);
  const bool failed = failed_.load(std::memory_order_relaxed);
  while (node != nullptr) {
    Outstanding* const next = node->next;
    --num_outstanding_;
    idle_outstanding_.push_back(node);
    if (!failed) Finish(node->index);
    node = next;
  }
}

void StraightRun::Finish(int index) {
  const PlanNode& n = plan_->nodes_[index];
  const StraightPlan::NodeInfo& info = straight_->info[index];
  // A kernel that has left its output unset has declared it dead.
  const bool dead = dead_[index] || (n.num_outputs > 0 && !slots_[n.first_output].IsInitialized());
  const int* const input_slots = plan_->input_slots_.data() + n.first_input;
  for (int k = 0; k < n.num_inputs; ++k) {
    if (--uses_[input_slots[k]] == 0) slots_[input_slots[k]].Reset();
  }
  for (int k = 0; k < n.num_outputs; ++k) {
    if (uses_[n.first_output + k] == 0) slots_[n.first_output + k].Reset();
  }
  const int* const successors = straight_->successors.data() + info.first_successor;
  if (ABSL_PREDICT_FALSE(dead) && n.passes_death_on) {
    any_dead_ = true;
    for (int k = 0; k < info.num_successors; ++k) dead_[successors[k]] = true;
  }
  for (int k = 0; k < info.num_successors; ++k) {
    if (--pending_[successors[k]] == 0) ready_.push_back(successors[k]);
  }
}

void StraightRun::Fail(const Status& status) {
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return;
    status_ = status;
  }
  failed_.store(true, std::memory_order_release);
  // The other parts of the step are cancelled with this status, which names the node that failed.
  if (args_.step->cancellation != nullptr) args_.step->cancellation->StartCancel(status);
}

void StraightRun::RecordConstants() {
  const int64_t now = args_.stats->NowNanos();
  for (const PlanNode& n : plan_->nodes_) {
    if (n.kernel != nullptr || n.num_outputs == 0) continue;
    args_.stats->Record(*n.node, *n.device, now, now, absl::MakeConstSpan(&slots_[n.first_output], n.num_outputs));
  }
}

void StraightRun::End() {
  Status status;
  if (failed_.load(std::memory_order_relaxed)) {
    MutexLock lock(&mu_);
    status = status_;
  } else {
    status = plan_->ReadFetches(slots_.data(), fetches_);
  }
  auto done = std::move(done_);
  if (status.ok()) {
    plan_->ResetSlots(slots_.data());
    if (any_dead_) std::fill(dead_.begin(), dead_.end(), 0);
    any_dead_ = false;
    StraightPlan* const straight = straight_;
    MutexLock lock(&straight->mu_);
    straight->idle_.push_back(std::unique_ptr<StraightRun>(this));
  } else {
    delete this;  // together with the remaining values
  }
  done(std::move(status));
}

}  // namespace millrace
