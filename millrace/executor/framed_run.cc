#include "millrace/executor/framed_run.h"

#include <algorithm>
#include <utility>

#include "millrace/executor/framed_state.h"
#include "millrace/executor/kernel_execution.h"

namespace millrace {

// The state of a running node; lives until it has finished.
struct FramedRun::Scratch {
  explicit Scratch(int max_outputs) : outputs(max_outputs) {}
  KernelExecution execution;
  std::vector<Tensor> outputs;
};

// Exclusive access to the run's state: takes the lock, unless only one thread works on the run.
class ABSL_SCOPED_LOCKABLE FramedRun::Turn {
 public:
  explicit Turn(FramedRun* run) ABSL_EXCLUSIVE_LOCK_FUNCTION(run->mu_)
      : mu_(run->activities_.load(std::memory_order_acquire) > 1 ? &run->mu_ : nullptr) {
    if (mu_ != nullptr) mu_->Lock();
  }
  ~Turn() ABSL_UNLOCK_FUNCTION() {
    if (mu_ != nullptr) mu_->Unlock();
  }

 private:
  Mutex* const mu_;
};

FramedRun::FramedRun(const Plan* plan, FramedPlan* framed) : plan_(plan), framed_(framed) {}
FramedRun::~FramedRun() = default;

void FramedRun::Start(const Plan* plan, FramedPlan* framed, const RunArgs& args, absl::Span<Tensor> fetches,
                      absl::AnyInvocable<void(Status)> done) {
  std::unique_ptr<FramedRun> idle;
  {
    MutexLock lock(&framed->mu_);
    if (!framed->idle_.empty()) {
      idle = std::move(framed->idle_.back());
      framed->idle_.pop_back();
    }
  }
  FramedRun* run = idle != nullptr ? idle.release() : new FramedRun(plan, framed);
  run->args_ = args;
  run->fetches_ = fetches;
  run->done_ = std::move(done);
  run->activities_.store(1);
  run->failed_.store(false);
  ReadyList ready;
  {
    Turn turn(run);
    run->status_ = absl::OkStatus();
    run->fetched_.assign(fetches.size(), Fetched{});
    for (const auto& [fetch, feed] : framed->fed_fetches) run->fetched_[fetch] = {args.feeds[feed], true, false};
    run->idle_iterations_.resize(framed->frames.size());
    run->root_ = run->ChildFrame(0, nullptr, nullptr);
    Iteration* first = run->AddIteration(run->root_, &ready);
    ready.reserve(framed->roots.size() + 16);
    for (auto it = framed->roots.rbegin(); it != framed->roots.rend(); ++it) {
      ++first->outstanding;
      ready.push_back({*it, false, run->root_, first});
    }
  }
  run->Work(std::move(ready));
}

void FramedRun::Work(ReadyList ready) {
  Scratch mine(framed_->max_outputs);
  Scheduler* const pool = args_.step->inter_op;
  while (!ready.empty()) {
    const Ready r = ready.back();
    ready.pop_back();
    const PlanNode& n = plan_->nodes_[r.node];
    if (pool != nullptr && n.is_expensive && !ready.empty() && !r.is_dead && !failed_.load()) {
      activities_.fetch_add(1);
      pool->Schedule([this, r] { Work({r}); });
      continue;
    }
    if (n.is_expensive) args_.step->HandOver();
    const FramedPlan::NodeInfo& info = framed_->info[r.node];
    if (failed_.load(std::memory_order_acquire)) {
      Complete(r, mine.outputs.data(), false, &ready);
    } else if (n.kernel == nullptr || (r.is_dead && !n.runs_dead)) {
      for (int k = 0; k < n.num_inputs; ++k) {
        Tensor& t = r.iteration->inputs[info.first_input + k];
        if (t.IsInitialized()) t.Reset();
      }
      Complete(r, mine.outputs.data(), false, &ready);
    } else if (RunNode(r, &mine)) {
      Complete(r, mine.outputs.data(), true, &ready);
    }
  }
  EndActivity();
}

bool FramedRun::PassOn(const Ready& r, Tensor* outputs) {
  const FramedPlan::NodeInfo& info = framed_->info[r.node];
  const PlanNode& n = plan_->nodes_[r.node];
  Tensor* const inputs = r.iteration->inputs.data() + info.first_input;
  if (info.passes_on) {
    outputs[0] = std::move(inputs[0]);
    inputs[0].Reset();
    return true;
  }
  if (info.constant >= 0) {
    outputs[0] = framed_->constants[info.constant];
    return true;
  }
  if (info.kind == Kind::kSwitch && n.deref == 0 && n.num_outputs == 2 && inputs[1].dtype() == DType::kBool &&
      inputs[1].num_elements() == 1 && n.device->type() == "CPU") {
    outputs[inputs[1].scalar<bool>() ? 1 : 0] = std::move(inputs[0]);
    inputs[0].Reset();
    inputs[1].Reset();
    return true;
  }
  if (info.kind == Kind::kMerge && !info.needs_index) {
    for (int k = 0; k < n.num_inputs; ++k) {
      if (!inputs[k].IsInitialized()) continue;
      outputs[0] = std::move(inputs[k]);
      inputs[k].Reset();
      return true;
    }
  }
  return false;
}

bool FramedRun::RunNode(const Ready& r, Scratch* scratch) {
  const PlanNode& n = plan_->nodes_[r.node];
  const CancellationManager* const cancellation = args_.step->cancellation;
  if (cancellation != nullptr && cancellation->IsCancelled()) {
    Fail(NodeError(*n.node, *n.device, cancellation->status()));
    return true;
  }
  if (args_.stats == nullptr) return PassOn(r, scratch->outputs.data()) || RunKernel(r, scratch);
  const int64_t start = args_.stats->NowNanos();
  if (!PassOn(r, scratch->outputs.data())) return RunKernel(r, scratch);
  args_.stats->Record(*n.node, *n.device, start, args_.stats->NowNanos(),
                      absl::MakeConstSpan(scratch->outputs.data(), n.num_outputs));
  return true;
}

bool FramedRun::RunKernel(const Ready& r, Scratch* scratch) {
  const PlanNode& n = plan_->nodes_[r.node];
  const FramedPlan::NodeInfo& info = framed_->info[r.node];
  // The inputs of a node in an iteration are accessed by that node only.
  Tensor* const inputs = r.iteration->inputs.data() + info.first_input;
  const auto start = [&](Scratch& mine) {
    const Tensor** const pointers = mine.execution.RoomForInputs(n.num_inputs);
    for (int k = 0; k < n.num_inputs; ++k) pointers[k] = &inputs[k];
    mine.execution.SetFrame(r.frame->id, r.iteration->number, r.is_dead);
  };
  const auto end = [this, inputs, num_inputs = n.num_inputs](const Status& status) {
    if (!status.ok()) Fail(status);
    for (int k = 0; k < num_inputs; ++k) inputs[k].Reset();
  };
  if (!n.is_async) {
    start(*scratch);
    end(scratch->execution.Run(n, args_, ~uint64_t{0}, scratch->outputs.data()));
    return true;
  }
  activities_.fetch_add(1);
  Scratch* const mine = new Scratch(n.num_outputs);
  start(*mine);
  mine->execution.Start(n, args_, ~uint64_t{0}, mine->outputs.data(), [this, r, mine, end](const Status& status) {
    end(status);
    ReadyList ready;
    Complete(r, mine->outputs.data(), true, &ready);
    delete mine;
    Work(std::move(ready));
  });
  return false;
}

void FramedRun::Complete(const Ready& r, Tensor* outputs, bool ran, ReadyList* ready) {
  const PlanNode& n = plan_->nodes_[r.node];
  const FramedPlan::NodeInfo& info = framed_->info[r.node];
  bool dead = r.is_dead && n.passes_death_on;
  // A _Recv may receive a dead value; then its outputs are dead.
  if (ran && info.kind != Kind::kSwitch && n.num_outputs > 0) dead |= !outputs[0].IsInitialized();
  {
    Turn turn(this);
    if (!failed_.load(std::memory_order_acquire)) Propagate(r, outputs, dead, ready);
    if (--r.iteration->outstanding == 0) CleanUp(r.frame, ready);
  }
  for (int k = 0; k < n.num_outputs; ++k) {
    if (outputs[k].IsInitialized()) outputs[k].Reset();
  }
}

void FramedRun::KeepFetches(int node, const Tensor* outputs, bool dead) {
  auto it = std::lower_bound(framed_->fetches.begin(), framed_->fetches.end(), node,
                             [](const FramedPlan::Fetch& f, int wanted) { return f.node < wanted; });
  for (; it != framed_->fetches.end() && it->node == node; ++it) {
    Fetched& fetched = fetched_[it->fetch];
    fetched.present = true;
    fetched.dead = dead || !outputs[it->output].IsInitialized();
    fetched.tensor = fetched.dead ? Tensor() : outputs[it->output];
  }
}

void FramedRun::Propagate(const Ready& r, Tensor* outputs, bool dead, ReadyList* ready) {
  const FramedPlan::NodeInfo& info = framed_->info[r.node];
  if (info.is_fetched && !(info.kind == Kind::kExit && dead)) KeepFetches(r.node, outputs, dead);
  switch (info.kind) {
    case Kind::kPlain:
    case Kind::kSwitch:
    case Kind::kMerge:
      Deliver(r.node, outputs, dead, r.frame, r.iteration, ready);
      return;
    case Kind::kEnter: {
      FrameState* child = ChildFrame(info.child_frame, r.frame, r.iteration);
      if (child->oldest == nullptr && child->next_number == 0) AddIteration(child, ready);
      --child->enters_left;
      if (info.is_constant) {
        child->constants.push_back({r.node, dead, outputs[0]});
        // Control edges out of a constant Enter are delivered with it in every iteration.
        for (Iteration* iteration = child->oldest; iteration != nullptr; iteration = iteration->next) {
          for (int e = 0; e < info.num_edges; ++e) {
            Arrive(framed_->edges[info.first_edge + e], dead, &outputs[0], false, child, iteration, ready);
          }
        }
      } else {
        Deliver(r.node, outputs, dead, child, child->oldest, ready);
      }
      CleanUp(child, ready);
      return;
    }
    case Kind::kExit:
      if (dead) {
        if (r.iteration == r.frame->newest) r.frame->dead_exits.push_back(r.node);
      } else {
        Deliver(r.node, outputs, false, r.frame->parent, r.frame->parent_iteration, ready);
      }
      return;
    case Kind::kNextIteration:
      if (dead) return;
      if (r.iteration->next != nullptr) {
        Deliver(r.node, outputs, false, r.frame, r.iteration->next, ready);
        return;
      }
      r.frame->waiting.emplace_back(r.node, std::move(outputs[0]));
      outputs[0].Reset();
      StartNextIteration(r.frame, ready);
      return;
  }
}

void FramedRun::Deliver(int node, Tensor* outputs, bool dead, FrameState* frame, Iteration* iteration,
                        ReadyList* ready) {
  const FramedPlan::NodeInfo& info = framed_->info[node];
  const FramedPlan::Edge* edge = framed_->edges.data() + info.first_edge;
  const FramedPlan::Edge* const end = edge + info.num_edges;
  for (; edge != end; ++edge) {
    Tensor* const value = edge->output >= 0 ? &outputs[edge->output] : nullptr;
    Arrive(*edge, dead || (value != nullptr && !value->IsInitialized()), value, edge->is_last, frame, iteration, ready);
  }
}

void FramedRun::Arrive(const FramedPlan::Edge& edge, bool dead, Tensor* value, bool may_move, FrameState* frame,
                       Iteration* iteration, ReadyList* ready) {
  Count& count = iteration->counts[edge.local];
  const auto take = [&] {
    Tensor& input = iteration->inputs[edge.input];
    if (may_move) {
      input = std::move(*value);
      value->Reset();
    } else {
      input = *value;
    }
  };
  bool is_dead;
  if (!edge.to_merge) {
    count.any_dead |= dead;
    if (edge.input >= 0 && !dead) take();
    if (--count.pending != 0) return;
    is_dead = count.any_dead;
  } else {
    if (edge.input < 0) {
      --count.pending_control;
    } else {
      --count.pending;
      // The first live value wins.
      if (!dead && !count.live) {
        count.live = true;
        take();
      }
    }
    if (count.fired || count.pending_control > 0) return;
    // The Merge of a loop gets no back edge in the first iteration and no Enter in later ones. If the one input that
    // can arrive is dead, so is the Merge.
    const bool loop_is_dead = dead && edge.input >= 0 && framed_->info[edge.target].is_loop_merge;
    if (!count.live && count.pending > 0 && !loop_is_dead) return;
    is_dead = !count.live;
  }
  count.fired = true;
  ++iteration->outstanding;
  ready->push_back({edge.target, is_dead, frame, iteration});
}

void FramedRun::Fail(const Status& why) {
  {
    Turn turn(this);
    if (!status_.ok()) return;
    status_ = why;
  }
  failed_.store(true, std::memory_order_release);
  // The other parts of the step are cancelled with this status, which names the node that failed.
  if (args_.step->cancellation != nullptr) args_.step->cancellation->StartCancel(why);
}

Status FramedRun::ReadFetches() {
  for (size_t f = 0; f < fetched_.size(); ++f) {
    if (!fetched_[f].present || fetched_[f].dead) return DeadFetchError(plan_->fetches_[f]);
    if (IsRef(fetched_[f].tensor.dtype())) {
      MR_ASSIGN_OR_RETURN(fetches_[f], ReadReference(fetched_[f].tensor));
    } else {
      fetches_[f] = std::move(fetched_[f].tensor);
    }
  }
  return absl::OkStatus();
}

void FramedRun::EndActivity() {
  if (activities_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Status status;
  {
    Turn turn(this);
    status = status_.ok() ? ReadFetches() : status_;
    LetGo();
  }
  auto done = std::move(done_);
  {
    // After this the next run may reuse it.
    FramedPlan* const framed = framed_;
    MutexLock lock(&framed->mu_);
    framed->idle_.push_back(std::unique_ptr<FramedRun>(this));
  }
  done(std::move(status));
}

}  // namespace millrace
