#include "millrace/executor/straight_run.h"

#include <algorithm>
#include <utility>

#include "millrace/base/run_next.h"
#include "millrace/executor/framed_run.h"

namespace millrace {

std::unique_ptr<Plan::RunState> Plan::TakeState() {
  {
    MutexLock lock(&mu_);
    if (!idle_states_.empty()) {
      auto state = std::move(idle_states_.back());
      idle_states_.pop_back();
      return state;
    }
  }
  auto state = std::make_unique<RunState>();
  state->slots.resize(num_slots_);
  state->inputs.resize(max_inputs_);
  state->derefs.resize(std::min(max_inputs_, 64));
  for (const auto& [slot, value] : constants_) state->slots[slot] = value;
  return state;
}

void Plan::GiveBack(std::unique_ptr<RunState> state) {
  MutexLock lock(&mu_);
  idle_states_.push_back(std::move(state));
}

Status Plan::ReadFetches(const RunState& state, absl::Span<Tensor> fetches) const {
  for (size_t i = 0; i < fetch_slots_.size(); ++i) {
    const Tensor& value = state.slots[fetch_slots_[i]];
    if (!value.IsInitialized()) {
      return Internal("the fetched tensor ", fetches_[i].name(), " was not computed");
    }
    if (IsRef(value.dtype())) {
      MR_ASSIGN_OR_RETURN(fetches[i], ReadReference(value));
    } else {
      fetches[i] = value;
    }
  }
  return absl::OkStatus();
}

template <bool kTrace>
Status Plan::RunSequential(const RunArgs& args, RunState& state, absl::Span<Tensor> fetches) {
  Tensor* const slots = state.slots.data();
  const Tensor** const inputs = state.inputs.data();
  const CancellationManager* const cancellation = args.step->cancellation;
  KernelContext ctx;
  KernelContextAccess access(ctx);
  for (size_t i = 0; i < feed_slots_.size(); ++i) slots[feed_slots_[i]] = args.feeds[i];
  for (const PlanNode& n : nodes_) {
    if (n.kernel != nullptr) {
      if (cancellation != nullptr && cancellation->IsCancelled()) return cancellation->status();
      const int* const input_slots = input_slots_.data() + n.first_input;
      for (int k = 0; k < n.num_inputs; ++k) inputs[k] = &slots[input_slots[k]];
      for (uint64_t left = n.deref; left != 0; left &= left - 1) {
        const int k = __builtin_ctzll(left);
        StatusOr<Tensor> value = ReadReference(*inputs[k]);
        if (!value.ok()) return NodeError(*n.node, *n.device, value.status());
        state.derefs[k] = *std::move(value);
        inputs[k] = &state.derefs[k];
      }
      access.Set(n.node, n.device, args.allocator, args.step);
      access.SetInputs(inputs, n.num_inputs, n.last_use);
      access.SetOutputs(slots + n.first_output, n.num_outputs);
      const int64_t start = kTrace ? args.stats->NowNanos() : 0;
      Status status = n.kernel->Compute(ctx);
      if (!status.ok()) return NodeError(*n.node, *n.device, status);
      if (kTrace) {
        args.stats->Record(*n.node, *n.device, start, args.stats->NowNanos(),
                           absl::MakeConstSpan(slots + n.first_output, n.num_outputs));
      }
      for (uint64_t left = n.deref; left != 0; left &= left - 1) {
        state.derefs[__builtin_ctzll(left)].Reset();
      }
    }
    const int* const releases = releases_.data() + n.first_release;
    for (int k = 0; k < n.num_releases; ++k) slots[releases[k]].Reset();
  }
  return ReadFetches(state, fetches);
}

Status Plan::Run(const RunArgs& args, absl::Span<Tensor> fetches) {
  if (sequential_) {
    std::unique_ptr<RunState> state = TakeState();
    Status status = args.stats == nullptr ? RunSequential<false>(args, *state, fetches)
                                          : RunSequential<true>(args, *state, fetches);
    if (!status.ok()) return status;  // a state with values left over is not used again
    for (const int slot : fetch_slots_) state->slots[slot].Reset();
    for (const int slot : feed_slots_) state->slots[slot].Reset();
    for (const auto& [slot, value] : constants_) {
      if (!state->slots[slot].IsInitialized()) state->slots[slot] = value;
    }
    GiveBack(std::move(state));
    return absl::OkStatus();
  }
  Notification finished;
  Status result;
  RunAsync(args, fetches, [&](Status status) {
    result = std::move(status);
    finished.Notify();
  });
  finished.Wait();
  return result;
}

void Plan::RunAsync(const RunArgs& args, absl::Span<Tensor> fetches,
                    absl::AnyInvocable<void(Status)> done) {
  if (framed_ != nullptr) {
    FramedRun::Start(this, framed_.get(), args, fetches, std::move(done));
  } else if (sequential_) {
    done(Run(args, fetches));
  } else {
    StraightRun::Start(this, args, fetches, TakeState(), std::move(done));
  }
}

struct StraightRun::Scratch {
  KernelContext ctx;
  std::vector<const Tensor*> inputs;
  std::vector<Tensor> derefs;
};

struct StraightRun::AsyncNode {
  Scratch scratch;
  int64_t start = 0;
};

StraightRun::StraightRun(Plan* plan, const RunArgs& args, absl::Span<Tensor> fetches,
                         std::unique_ptr<Plan::RunState> state, absl::AnyInvocable<void(Status)> done)
    : plan_(plan),
      args_(args),
      fetches_(fetches),
      state_(std::move(state)),
      done_(std::move(done)),
      pending_(plan->nodes_.size()),
      uses_(plan->slot_uses_.size()) {}

void StraightRun::Start(Plan* plan, const RunArgs& args, absl::Span<Tensor> fetches,
                        std::unique_ptr<Plan::RunState> state,
                        absl::AnyInvocable<void(Status)> done) {
  auto* run = new StraightRun(plan, args, fetches, std::move(state), std::move(done));
  for (size_t i = 0; i < args.feeds.size(); ++i) {
    run->state_->slots[plan->feed_slots_[i]] = args.feeds[i];
  }
  std::vector<int> ready;
  for (size_t i = 0; i < plan->nodes_.size(); ++i) {
    run->pending_[i].store(plan->nodes_[i].num_pending, std::memory_order_relaxed);
    if (plan->nodes_[i].num_pending == 0) ready.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < plan->slot_uses_.size(); ++i) {
    run->uses_[i].store(plan->slot_uses_[i], std::memory_order_relaxed);
  }
  std::reverse(ready.begin(), ready.end());  // Work takes from the end
  run->Work(std::move(ready));
}

void StraightRun::Work(std::vector<int> ready) {
  Scratch scratch;
  Scheduler* const pool = args_.step->inter_op;
  while (!ready.empty()) {
    const int index = ready.back();
    ready.pop_back();
    // Keep one expensive node for this thread and give the others away.
    if (pool != nullptr && plan_->nodes_[index].is_expensive && !ready.empty() && !failed_.load()) {
      activities_.fetch_add(1);
      pool->Schedule([this, index] { Work({index}); });
      continue;
    }
    if (plan_->nodes_[index].is_expensive) HandOverNext();
    if (failed_.load(std::memory_order_acquire)) {
      Finish(index, absl::OkStatus(), &ready);
    } else if (RunNode(index, scratch)) {
      Finish(index, absl::OkStatus(), &ready);
    }
  }
  EndActivity();
}

bool StraightRun::RunNode(int index, Scratch& scratch) {
  const PlanNode& n = plan_->nodes_[index];
  if (n.kernel == nullptr) return true;
  if (args_.step->cancellation != nullptr && args_.step->cancellation->IsCancelled()) {
    Fail(n, args_.step->cancellation->status());
    return true;
  }
  AsyncNode* async = n.is_async ? new AsyncNode : nullptr;
  Scratch& mine = async != nullptr ? async->scratch : scratch;
  mine.inputs.resize(std::max<size_t>(mine.inputs.size(), n.num_inputs));
  mine.derefs.resize(std::max<size_t>(mine.derefs.size(), std::min(n.num_inputs, 64)));
  Tensor* const slots = state_->slots.data();
  uint64_t forwardable = 0;
  for (int k = 0; k < n.num_inputs; ++k) {
    const int slot = plan_->input_slots_[n.first_input + k];
    mine.inputs[k] = &slots[slot];
    // Nobody else will look at it: every other use has been counted down.
    if (k < 64 && uses_[slot].load(std::memory_order_acquire) == 1) forwardable |= uint64_t{1} << k;
  }
  for (uint64_t left = n.deref; left != 0; left &= left - 1) {
    const int k = __builtin_ctzll(left);
    StatusOr<Tensor> value = ReadReference(*mine.inputs[k]);
    if (!value.ok()) {
      Fail(n, value.status());
      delete async;
      return true;
    }
    mine.derefs[k] = *std::move(value);
    mine.inputs[k] = &mine.derefs[k];
    forwardable &= ~(uint64_t{1} << k);
  }
  KernelContextAccess access(mine.ctx);
  access.Set(n.node, n.device, args_.allocator, args_.step);
  access.SetInputs(mine.inputs.data(), n.num_inputs, forwardable);
  access.SetOutputs(slots + n.first_output, n.num_outputs);
  const int64_t start = args_.stats != nullptr ? args_.stats->NowNanos() : 0;
  const auto record = [this, &n, slots, start] {
    if (args_.stats == nullptr) return;
    args_.stats->Record(*n.node, *n.device, start, args_.stats->NowNanos(),
                        absl::MakeConstSpan(slots + n.first_output, n.num_outputs));
  };
  if (async == nullptr) {
    Status status = n.kernel->Compute(mine.ctx);
    record();
    if (!status.ok()) Fail(n, status);
    for (uint64_t left = n.deref; left != 0; left &= left - 1) {
      mine.derefs[__builtin_ctzll(left)].Reset();
    }
    return true;
  }
  activities_.fetch_add(1);
  n.kernel->ComputeAsync(mine.ctx, [this, index, async, record](Status status) {
    record();
    if (!status.ok()) Fail(plan_->nodes_[index], status);
    delete async;
    std::vector<int> ready;
    Finish(index, status, &ready);
    Work(std::move(ready));
  });
  return false;
}

void StraightRun::Finish(int index, const Status& status, std::vector<int>* ready) {
  const PlanNode& n = plan_->nodes_[index];
  for (int k = 0; k < n.num_inputs; ++k) {
    const int slot = plan_->input_slots_[n.first_input + k];
    if (uses_[slot].fetch_sub(1, std::memory_order_acq_rel) == 1) state_->slots[slot].Reset();
  }
  for (int k = 0; k < n.num_outputs; ++k) {
    if (plan_->slot_uses_[n.first_output + k] == 0) state_->slots[n.first_output + k].Reset();
  }
  for (int k = 0; k < n.num_successors; ++k) {
    const int next = plan_->successors_[n.first_successor + k];
    if (pending_[next].fetch_sub(1, std::memory_order_acq_rel) == 1) ready->push_back(next);
  }
}

void StraightRun::Fail(const PlanNode& n, const Status& status) {
  const Status why = NodeError(*n.node, *n.device, status);
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return;
    status_ = why;
  }
  failed_.store(true, std::memory_order_release);
  // Others learn of it through this, and what they report is to name the node that failed.
  if (args_.step->cancellation != nullptr) args_.step->cancellation->StartCancel(why);
}

void StraightRun::EndActivity() {
  if (activities_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Status status;
  {
    MutexLock lock(&mu_);
    status = status_;
  }
  if (status.ok()) status = plan_->ReadFetches(*state_, fetches_);
  if (status.ok()) {
    for (const int slot : plan_->fetch_slots_) state_->slots[slot].Reset();
    for (const int slot : plan_->feed_slots_) state_->slots[slot].Reset();
    for (const auto& [slot, value] : plan_->constants_) state_->slots[slot] = value;
    plan_->GiveBack(std::move(state_));
  }
  auto done = std::move(done_);
  delete this;
  done(std::move(status));
}

}  // namespace millrace
