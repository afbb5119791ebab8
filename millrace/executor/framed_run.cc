#include "millrace/executor/framed_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

// MurmurHash64A: what TensorFlow names loop frames with, so the numbers must agree on the wire.
uint64_t FrameNameHash(absl::string_view name) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  uint64_t h = 0xDECAFCAFFEull ^ (name.size() * kMul);
  size_t i = 0;
  for (; i + 8 <= name.size(); i += 8) {
    uint64_t k;
    std::memcpy(&k, name.data() + i, 8);
    k *= kMul;
    k ^= k >> 47;
    k *= kMul;
    h = (h ^ k) * kMul;
  }
  if (i < name.size()) {
    uint64_t tail = 0;
    std::memcpy(&tail, name.data() + i, name.size() - i);
    h = (h ^ tail) * kMul;
  }
  h ^= h >> 47;
  h *= kMul;
  return h ^ (h >> 47);
}

uint64_t Combine(uint64_t a, uint64_t b) { return a ^ (b + 0x9e3779b97f4a7800 + (a << 10) + (a >> 4)); }

}  // namespace

uint64_t ChildFrameId(uint64_t parent_id, int64_t parent_iteration, absl::string_view frame_name) {
  return Combine(parent_id,
                 Combine(static_cast<uint64_t>(parent_iteration), FrameNameHash(frame_name)));
}

struct FramedRun::Iteration {
  int64_t number = 0;
  std::vector<Value> inputs;  // of all nodes of the frame
  std::vector<Count> counts;
  int outstanding = 0;         // nodes that are ready or at work
  int open_frames = 0;         // child frames entered from here
};

struct FramedRun::FrameState {
  int frame = 0;
  uint64_t id = 0;
  FrameState* parent = nullptr;
  Iteration* parent_iteration = nullptr;
  int enters_left = 0;
  int64_t newest = 0;  // number of the newest iteration
  std::deque<std::unique_ptr<Iteration>> iterations;  // alive ones, oldest first
  std::vector<std::unique_ptr<FrameState>> children;
  struct Constant {
    int enter;
    Value value;
  };
  std::vector<Constant> constants;
  // Values for an iteration that may not start yet: as many are at work as the loop allows.
  std::vector<std::pair<int, Value>> waiting;
  // Exits that were dead in the newest iteration: dead for good if no other one comes.
  std::vector<int> dead_exits;
};

// What a node at work needs; lives until it has finished.
struct FramedRun::Execution {
  KernelContext ctx;
  std::vector<const Tensor*> inputs;
  std::vector<Tensor> owned;
  std::vector<Tensor> outputs;
  std::vector<Value> values;
  int64_t start = 0;
};

FramedRun::FramedRun(const Plan* plan, const FramedPlan* framed, const RunArgs& args,
                     absl::Span<Tensor> fetches, absl::AnyInvocable<void(Status)> done)
    : plan_(plan), framed_(framed), args_(args), fetches_(fetches), done_(std::move(done)) {}

FramedRun::~FramedRun() = default;

void FramedRun::Start(const Plan* plan, const FramedPlan* framed, const RunArgs& args,
                      absl::Span<Tensor> fetches, absl::AnyInvocable<void(Status)> done) {
  auto* run = new FramedRun(plan, framed, args, fetches, std::move(done));
  std::vector<Ready> ready;
  {
    MutexLock lock(&run->mu_);
    run->fetched_.resize(fetches.size());
    absl::flat_hash_map<const Node*, int> position;
    for (size_t i = 0; i < plan->nodes_.size(); ++i) position[plan->nodes_[i].node] = static_cast<int>(i);
    for (size_t f = 0; f < plan->fetches_.size(); ++f) {
      const auto fed = std::find(plan->feed_slots_.begin(), plan->feed_slots_.end(), plan->fetch_slots_[f]);
      if (fed != plan->feed_slots_.end()) {
        run->fetched_[f] = {args.feeds[fed - plan->feed_slots_.begin()], true, false};
      } else {
        run->fetch_of_[{position[plan->fetches_[f].node], plan->fetches_[f].index}].push_back(
            static_cast<int>(f));
      }
    }
    run->root_ = std::make_unique<FrameState>();
    run->root_->newest = -1;
    Iteration* first = run->AddIteration(run->root_.get(), &ready);
    for (const auto& node : framed->frames[0].nodes) {
      const auto& info = framed->info[node];
      if (info.num_data == 0 && info.num_control == 0) {
        ++first->outstanding;
        ready.push_back({node, run->root_.get(), first, false});
      }
    }
  }
  std::reverse(ready.begin(), ready.end());
  run->Work(std::move(ready));
}

FramedRun::Iteration* FramedRun::AddIteration(FrameState* frame, std::vector<Ready>* ready) {
  const FramedPlan::Frame& layout = framed_->frames[frame->frame];
  auto iteration = std::make_unique<Iteration>();
  iteration->number = ++frame->newest;
  iteration->inputs.resize(layout.num_inputs);
  iteration->counts.resize(layout.num_nodes);
  for (const int node : layout.nodes) {
    const FramedPlan::NodeInfo& info = framed_->info[node];
    iteration->counts[info.local].pending_data = info.num_data;
    iteration->counts[info.local].pending_control = info.num_control;
  }
  for (const FramedPlan::FedInput& fed : framed_->fed_inputs) {
    if (framed_->info[fed.node].frame != frame->frame) continue;
    Value& value = iteration->inputs[framed_->info[fed.node].first_input + fed.input];
    value = {args_.feeds[fed.feed], true, false};
    if (framed_->info[fed.node].kind == FramedPlan::Kind::kMerge) {
      iteration->counts[framed_->info[fed.node].local].live = true;
    }
  }
  frame->dead_exits.clear();
  frame->iterations.push_back(std::move(iteration));
  Iteration* result = frame->iterations.back().get();
  for (const auto& [enter, value] : frame->constants) {
    for (const FramedPlan::Edge& edge : framed_->edges[enter]) {
      DeliverEdge(edge, value, frame, result, ready);
    }
  }
  return result;
}

FramedRun::FrameState* FramedRun::ChildFrame(int frame, FrameState* parent, Iteration* parent_iteration) {
  for (const auto& child : parent->children) {
    if (child->frame == frame && child->parent_iteration == parent_iteration) return child.get();
  }
  auto child = std::make_unique<FrameState>();
  child->frame = frame;
  child->parent = parent;
  child->parent_iteration = parent_iteration;
  child->id = ChildFrameId(parent->id, parent_iteration->number, framed_->frames[frame].name);
  child->enters_left = framed_->frames[frame].num_enters;
  child->newest = -1;
  ++parent_iteration->open_frames;
  parent->children.push_back(std::move(child));
  return parent->children.back().get();
}

void FramedRun::Work(std::vector<Ready> ready) {
  Execution mine;
  Scheduler* const pool = args_.step->inter_op;
  while (!ready.empty()) {
    const Ready r = ready.back();
    ready.pop_back();
    if (pool != nullptr && plan_->nodes_[r.node].is_expensive && !ready.empty() && !r.is_dead &&
        !failed_.load()) {
      activities_.fetch_add(1);
      pool->Schedule([this, r] { Work({r}); });
      continue;
    }
    if (RunNode(r, &mine)) Complete(r, mine, &ready);
  }
  EndActivity();
}

bool FramedRun::RunNode(const Ready& r, Execution* execution) {
  const PlanNode& n = plan_->nodes_[r.node];
  const FramedPlan::NodeInfo& info = framed_->info[r.node];
  execution->values.assign(n.num_outputs, Value{});
  if (failed_.load(std::memory_order_acquire)) return true;
  // A dead node does not run, except one that tells another task so.
  const bool sends_death = n.node->is_type("_Send") || n.node->is_type("_HostSend");
  if (n.kernel == nullptr || (r.is_dead && !sends_death)) {
    for (Value& v : execution->values) v.dead = r.is_dead;
    return true;
  }
  if (args_.step->cancellation != nullptr && args_.step->cancellation->IsCancelled()) {
    Fail(n, args_.step->cancellation->status());
    return true;
  }
  std::unique_ptr<Execution> async;
  if (n.is_async) {
    async = std::make_unique<Execution>();
    async->values.assign(n.num_outputs, Value{});
    execution = async.get();
  }
  // The inputs of a node in an iteration are its own: nobody else looks at them.
  execution->owned.resize(std::max<size_t>(execution->owned.size(), n.num_inputs));
  execution->inputs.resize(std::max<size_t>(execution->inputs.size(), n.num_inputs));
  for (int k = 0; k < n.num_inputs; ++k) {
    Value& value = r.iteration->inputs[info.first_input + k];
    execution->owned[k] = value.dead ? Tensor() : std::move(value.tensor);
    if (k < 64 && (n.deref >> k & 1) != 0 && execution->owned[k].IsInitialized()) {
      StatusOr<Tensor> read = ReadReference(execution->owned[k]);
      if (!read.ok()) {
        Fail(n, read.status());
        return true;
      }
      execution->owned[k] = *std::move(read);
    }
    execution->inputs[k] = &execution->owned[k];
  }
  execution->outputs.assign(n.num_outputs, Tensor());
  KernelContextAccess access(execution->ctx);
  access.Set(n.node, n.device, args_.allocator, args_.step);
  access.SetInputs(execution->inputs.data(), n.num_inputs, ~uint64_t{0});
  access.SetOutputs(execution->outputs.data(), n.num_outputs);
  access.SetFrame(r.frame->id, r.iteration->number, r.is_dead);
  execution->start = args_.stats != nullptr ? args_.stats->NowNanos() : 0;
  if (async == nullptr) {
    Status status = n.kernel->Compute(execution->ctx);
    if (!status.ok()) Fail(n, status);
    return true;
  }
  activities_.fetch_add(1);
  Execution* raw = async.release();
  n.kernel->ComputeAsync(raw->ctx, [this, r, raw](Status status) {
    if (!status.ok()) Fail(plan_->nodes_[r.node], status);
    std::vector<Ready> ready;
    Complete(r, *raw, &ready);
    delete raw;
    Work(std::move(ready));
  });
  return false;
}

void FramedRun::Complete(const Ready& r, Execution& execution, std::vector<Ready>* ready) {
  const PlanNode& n = plan_->nodes_[r.node];
  if (args_.stats != nullptr && !r.is_dead && n.kernel != nullptr) {
    args_.stats->Record(*n.node, *n.device, execution.start, args_.stats->NowNanos(), execution.outputs);
  }
  const bool ran = !r.is_dead && n.kernel != nullptr && !failed_.load(std::memory_order_acquire);
  for (int k = 0; ran && k < n.num_outputs; ++k) {
    execution.values[k].dead = !execution.outputs[k].IsInitialized();
    execution.values[k].tensor = std::move(execution.outputs[k]);
  }
  // A Recv may learn that its value is dead: then all of it is.
  for (Tensor& t : execution.owned) t.Reset();
  MutexLock lock(&mu_);
  if (!failed_.load(std::memory_order_acquire)) {
    Propagate(r, execution.values, ready);
  }
  --r.iteration->outstanding;
  CleanUp(r.frame, ready);
}

void FramedRun::KeepFetches(int node, const std::vector<Value>& outputs) {
  if (fetch_of_.empty()) return;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const auto it = fetch_of_.find({node, static_cast<int>(k)});
    if (it == fetch_of_.end()) continue;
    for (const int f : it->second) fetched_[f] = {outputs[k].tensor, true, outputs[k].dead};
  }
}

void FramedRun::Propagate(const Ready& r, std::vector<Value>& outputs, std::vector<Ready>* ready) {
  using Kind = FramedPlan::Kind;
  const FramedPlan::NodeInfo& info = framed_->info[r.node];
  const bool dead = r.is_dead || (info.kind != Kind::kSwitch && !outputs.empty() && outputs[0].dead);
  if (!(info.kind == Kind::kExit && dead)) KeepFetches(r.node, outputs);
  switch (info.kind) {
    case Kind::kPlain:
    case Kind::kSwitch:
    case Kind::kMerge:
      Deliver(r.node, outputs, dead, r.frame, r.iteration, ready);
      return;
    case Kind::kEnter: {
      FrameState* child = ChildFrame(info.child_frame, r.frame, r.iteration);
      Iteration* first = child->iterations.empty() && child->newest < 0
                             ? AddIteration(child, ready)
                             : child->iterations.front().get();
      --child->enters_left;
      if (info.is_constant) {
        child->constants.push_back({r.node, {outputs[0].tensor, true, dead}});
        // Control edges out of a constant Enter are delivered with it in every iteration.
        for (const auto& iteration : child->iterations) {
          Deliver(r.node, outputs, dead, child, iteration.get(), ready);
        }
      } else {
        Deliver(r.node, outputs, dead, child, first, ready);
      }
      CleanUp(child, ready);
      return;
    }
    case Kind::kExit:
      if (dead) {
        if (r.iteration->number == r.frame->newest) r.frame->dead_exits.push_back(r.node);
      } else {
        Deliver(r.node, outputs, false, r.frame->parent, r.frame->parent_iteration, ready);
      }
      return;
    case Kind::kNextIteration: {
      if (dead) return;
      FrameState* frame = r.frame;
      if (r.iteration->number < frame->newest) {
        for (const auto& iteration : frame->iterations) {
          if (iteration->number == r.iteration->number + 1) {
            Deliver(r.node, outputs, false, frame, iteration.get(), ready);
            return;
          }
        }
        return;
      }
      frame->waiting.emplace_back(r.node, outputs[0]);
      StartNextIteration(frame, ready);
      return;
    }
  }
}

void FramedRun::StartNextIteration(FrameState* frame, std::vector<Ready>* ready) {
  const int limit = framed_->frames[frame->frame].parallel_iterations;
  if (frame->waiting.empty() || static_cast<int>(frame->iterations.size()) >= limit + 1) return;
  Iteration* iteration = AddIteration(frame, ready);
  auto waiting = std::move(frame->waiting);
  frame->waiting.clear();
  for (auto& [node, value] : waiting) Deliver(node, {value}, false, frame, iteration, ready);
}

void FramedRun::Deliver(int node, const std::vector<Value>& outputs, bool is_dead, FrameState* frame,
                        Iteration* iteration, std::vector<Ready>* ready) {
  for (const FramedPlan::Edge& edge : framed_->edges[node]) {
    if (edge.output >= 0) {
      const Value& value = outputs[edge.output];
      DeliverEdge(edge, {value.tensor, true, value.dead || is_dead}, frame, iteration, ready);
    } else {
      DeliverEdge(edge, {Tensor(), true, is_dead}, frame, iteration, ready);
    }
  }
}

void FramedRun::DeliverEdge(const FramedPlan::Edge& edge, const Value& value, FrameState* frame,
                            Iteration* iteration, std::vector<Ready>* ready) {
  const FramedPlan::NodeInfo& info = framed_->info[edge.target];
  Count& count = iteration->counts[info.local];
  if (edge.output < 0 || edge.input < 0) {
    --count.pending_control;
    count.any_dead |= value.dead;
  } else {
    --count.pending_data;
    Value& input = iteration->inputs[info.first_input + edge.input];
    if (info.kind == FramedPlan::Kind::kMerge) {
      // The first live value wins; the back edge of a loop comes in the next iteration's own.
      if (!value.dead && !count.live) {
        count.live = true;
        input = value;
      }
    } else {
      input = value;
      count.any_dead |= value.dead;
    }
  }
  if (count.fired) return;
  bool is_ready = false, is_dead = false;
  if (info.kind == FramedPlan::Kind::kMerge) {
    const bool all_came = count.pending_data == 0;
    is_ready = count.pending_control == 0 && (count.live || all_came);
    is_dead = !count.live;
    // A loop's Merge: its back edge never comes in the first iteration, nor its Enter later. When the
    // one input that can come is dead, so is the Merge.
    if (!is_ready && !count.live && count.pending_control == 0 && value.dead && edge.output >= 0) {
      const Node& merge = *plan_->nodes_[edge.target].node;
      bool loop = false;
      for (const Endpoint& in : merge.inputs()) loop |= in.node->IsNextIteration();
      if (loop) is_ready = true;
    }
  } else {
    is_ready = count.pending_control == 0 && count.pending_data == 0;
    is_dead = count.any_dead;
  }
  if (!is_ready) return;
  count.fired = true;
  ++iteration->outstanding;
  ready->push_back({edge.target, frame, iteration, is_dead});
}

void FramedRun::CleanUp(FrameState* frame, std::vector<Ready>* ready) {
  if (frame->parent == nullptr) return;  // the root goes with the run
  while (!frame->iterations.empty()) {
    Iteration* oldest = frame->iterations.front().get();
    const bool entered = oldest->number > 0 || frame->enters_left == 0;
    if (!entered || oldest->outstanding > 0 || oldest->open_frames > 0) return;
    // The newest one may still get an iteration after it only from itself, and it is over.
    if (frame->iterations.size() == 1 && !frame->waiting.empty()) {
      StartNextIteration(frame, ready);
    }
    frame->iterations.pop_front();
    StartNextIteration(frame, ready);
  }
  if (frame->enters_left > 0) return;
  // The frame is over: exits that never were live are dead in the parent.
  FrameState* parent = frame->parent;
  Iteration* parent_iteration = frame->parent_iteration;
  if (!failed_.load(std::memory_order_acquire)) {
    for (const int exit : frame->dead_exits) {
      std::vector<Value> dead(plan_->nodes_[exit].num_outputs);
      for (Value& v : dead) v.dead = true;
      KeepFetches(exit, dead);
      Deliver(exit, dead, true, parent, parent_iteration, ready);
    }
  }
  --parent_iteration->open_frames;
  for (auto it = parent->children.begin(); it != parent->children.end(); ++it) {
    if (it->get() == frame) {
      parent->children.erase(it);
      break;
    }
  }
  CleanUp(parent, ready);
}

void FramedRun::Fail(const PlanNode& n, const Status& status) {
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return;
    status_ = NodeError(*n.node, *n.device, status);
  }
  failed_.store(true, std::memory_order_release);
  if (args_.step->cancellation != nullptr) args_.step->cancellation->StartCancel(status);
}

void FramedRun::EndActivity() {
  if (activities_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Status status;
  {
    MutexLock lock(&mu_);
    status = status_;
    for (size_t f = 0; status.ok() && f < fetched_.size(); ++f) {
      if (!fetched_[f].present || fetched_[f].dead) {
        status = Internal("the fetched tensor ", plan_->fetches_[f].name(),
                          " is dead: the branch that computes it was not taken\n\t [[{{node ",
                          plan_->fetches_[f].node->name(), "}}]]");
      } else if (IsRef(fetched_[f].tensor.dtype())) {
        StatusOr<Tensor> value = ReadReference(fetched_[f].tensor);
        status = value.status();
        if (value.ok()) fetches_[f] = *std::move(value);
      } else {
        fetches_[f] = std::move(fetched_[f].tensor);
      }
    }
  }
  auto done = std::move(done_);
  delete this;
  done(std::move(status));
}

}  // namespace millrace
