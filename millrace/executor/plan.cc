#include "millrace/executor/plan.h"

#include <algorithm>
#include <utility>

#include "millrace/executor/framed_run.h"
#include "millrace/executor/kernel_execution.h"
#include "millrace/executor/straight_run.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr int kMaskBits = 64;

uint64_t Bit(int i) { return i < kMaskBits ? uint64_t{1} << i : 0; }

}  // namespace

// The state of a sequential run, reused by later runs.
struct Plan::SequentialRun {
  std::vector<Tensor> slots;
  KernelExecution execution;
};

Plan::Plan() = default;
Plan::~Plan() { delete spare_.load(std::memory_order_acquire); }

StatusOr<std::unique_ptr<Plan>> Plan::Compile(std::unique_ptr<Graph> graph, const PlanOptions& options) {
  std::unique_ptr<Plan> plan(new Plan);
  plan->graph_ = std::move(graph);
  MR_RETURN_IF_ERROR(plan->CompileNodes(options));
  MR_RETURN_IF_ERROR(plan->CompileSlots(options));
  if (std::any_of(plan->nodes_.begin(), plan->nodes_.end(),
                  [](const PlanNode& n) { return n.node->IsControlFlow(); })) {
    MR_ASSIGN_OR_RETURN(plan->framed_, FramedPlan::Compile(*plan));
    return plan;
  }
  plan->CompileConstants();
  if (plan->CanRunInOrder()) {
    plan->CompileLastUses();
  } else {
    plan->straight_ = StraightPlan::Compile(*plan);
  }
  return plan;
}

Status Plan::CompileNodes(const PlanOptions& options) {
  MR_ASSIGN_OR_RETURN(std::vector<Node*> order, TopologicalOrder(*graph_));
  nodes_.reserve(order.size());
  kernels_.reserve(order.size());
  absl::flat_hash_map<const Node*, int> fed_outputs;
  for (const Endpoint& feed : options.feeds) ++fed_outputs[feed.node];
  for (const Node* node : order) {
    // A placeholder that is fed has nothing to run.
    if (auto it = fed_outputs.find(node); it != fed_outputs.end() && it->second == node->num_outputs()) {
      continue;
    }
    MR_ASSIGN_OR_RETURN(Device * device, options.device_of(*node));
    PlanNode n;
    n.node = node;
    n.device = device;
    if (!device->shares_host_memory() && !absl::c_linear_search(stream_devices_, device))
      stream_devices_.push_back(device);
    n.num_inputs = node->num_inputs();
    n.num_outputs = node->num_outputs();
    max_inputs_ = std::max(max_inputs_, n.num_inputs);
    n.is_send = node->IsSend();
    n.passes_death_on = !node->is_type("ControlTrigger");
    n.runs_dead = n.is_send || !n.passes_death_on;
    if (!node->is_type("NoOp")) {
      StatusOr<std::shared_ptr<Kernel>> made =
          options.make_kernel != nullptr
              ? options.make_kernel(*node, device)
              : StatusOr<std::shared_ptr<Kernel>>(KernelRegistry::Global().Create(*node, device));
      MR_ASSIGN_OR_RETURN(std::shared_ptr<Kernel> kernel, std::move(made));
      n.kernel = kernel.get();
      n.is_async = kernel->is_async();
      n.is_expensive = kernel->is_expensive();
      kernels_.push_back(std::move(kernel));
    }
    nodes_.push_back(n);
  }
  return absl::OkStatus();
}

Status Plan::CompileSlots(const PlanOptions& options) {
  std::vector<int> first_output(graph_->max_id(), -1);
  for (PlanNode& n : nodes_) {
    n.first_output = first_output[n.node->id()] = num_slots_;
    num_slots_ += n.num_outputs;
  }
  absl::flat_hash_map<Endpoint, int> fed;
  for (const Endpoint& feed : options.feeds) {
    feed_slots_.push_back(num_slots_);
    fed[feed] = num_slots_++;
  }
  for (PlanNode& n : nodes_) {
    n.first_input = static_cast<int>(input_slots_.size());
    for (int k = 0; k < n.num_inputs; ++k) {
      const Endpoint source = n.node->input(k);
      if (auto it = fed.find(source); it != fed.end()) {
        input_slots_.push_back(it->second);
        continue;
      }
      if (first_output[source.node->id()] < 0) {
        return Internal("node ", n.node->name(), " takes ", source.name(), ", which is not in the plan");
      }
      input_slots_.push_back(first_output[source.node->id()] + source.index);
      if (!IsRef(source.dtype()) || IsRef(n.node->input_type(k))) continue;
      if (k >= kMaskBits) {
        return Unimplemented("node ", n.node->name(), " takes a reference as input ", k, "; only the first ", kMaskBits,
                             " inputs may be references");
      }
      n.deref |= Bit(k);
    }
  }
  fetches_ = options.fetches;
  for (const Endpoint& fetch : options.fetches) {
    auto it = fed.find(fetch);
    fetch_slots_.push_back(it != fed.end() ? it->second : first_output[fetch.node->id()] + fetch.index);
  }
  return absl::OkStatus();
}

// Constants are read from their kernels once; their slots keep the value from run to run.
void Plan::CompileConstants() {
  for (PlanNode& n : nodes_) {
    if (!n.node->is_type("Const") || n.kernel == nullptr || !n.node->control_inputs().empty()) continue;
    StatusOr<Tensor> value = ConstantValue(n);
    if (!value.ok()) continue;  // the error is reported when it runs
    constants_.emplace_back(n.first_output, *std::move(value));
    n.kernel = nullptr;
  }
}

bool Plan::CanRunInOrder() const {
  int expensive = 0;
  for (const PlanNode& n : nodes_) {
    if (n.is_async) return false;
    expensive += n.is_expensive;
  }
  return expensive < 2;
}

void Plan::CompileLastUses() {
  std::vector<int> last_user(num_slots_, -1);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const PlanNode& n = nodes_[i];
    for (int k = 0; k < n.num_inputs; ++k) last_user[input_slots_[n.first_input + k]] = static_cast<int>(i);
    for (int k = 0; k < n.num_outputs; ++k) {
      if (last_user[n.first_output + k] < 0) last_user[n.first_output + k] = static_cast<int>(i);
    }
  }
  std::vector<bool> kept(num_slots_, false);
  for (const int slot : fetch_slots_) kept[slot] = true;
  for (const auto& [slot, value] : constants_) kept[slot] = true;
  std::vector<std::vector<int>> releases(nodes_.size());
  for (int slot = 0; slot < num_slots_; ++slot) {
    if (!kept[slot] && last_user[slot] >= 0) releases[last_user[slot]].push_back(slot);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    PlanNode& n = nodes_[i];
    n.first_release = static_cast<int>(releases_.size());
    n.num_releases = static_cast<int>(releases[i].size());
    releases_.insert(releases_.end(), releases[i].begin(), releases[i].end());
    for (int k = 0; k < std::min(n.num_inputs, kMaskBits); ++k) {
      const int slot = input_slots_[n.first_input + k];
      if (kept[slot] || last_user[slot] != static_cast<int>(i)) continue;
      // The same tensor is used twice (x * x): its memory must not be overwritten through one input while the other is
      // read.
      int times = 0;
      for (int j = 0; j < n.num_inputs; ++j) times += input_slots_[n.first_input + j] == slot;
      if (times == 1) n.last_use |= Bit(k);
    }
  }
}

void Plan::RunAsync(const RunArgs& args, absl::Span<Tensor> fetches, absl::AnyInvocable<void(Status)> done) {
  if (framed_ != nullptr) {
    FramedRun::Start(this, framed_.get(), args, fetches, std::move(done));
  } else if (straight_ != nullptr) {
    StraightRun::Start(this, straight_.get(), args, fetches, std::move(done));
  } else {
    done(Run(args, fetches));
  }
}

Status Plan::Run(const RunArgs& args, absl::Span<Tensor> fetches) {
  if (!is_sequential()) return RunAndWait(args, fetches);
  std::unique_ptr<SequentialRun> run = TakeIdleRun();
  Tensor* const slots = run->slots.data();
  const Tensor** const inputs = run->execution.RoomForInputs(max_inputs_);
  const CancellationManager* const cancellation = args.step->cancellation;
  for (size_t i = 0; i < feed_slots_.size(); ++i) slots[feed_slots_[i]] = args.feeds[i];
  for (const PlanNode& n : nodes_) {
    if (n.kernel != nullptr) {
      if (cancellation != nullptr && cancellation->IsCancelled()) return cancellation->status();
      const int* const input_slots = input_slots_.data() + n.first_input;
      for (int k = 0; k < n.num_inputs; ++k) inputs[k] = &slots[input_slots[k]];
      MR_RETURN_IF_ERROR(run->execution.Run(n, args, n.last_use, slots + n.first_output));
    } else if (ABSL_PREDICT_FALSE(args.stats != nullptr) && n.num_outputs > 0) {
      // A constant, which takes no time.
      const int64_t now = args.stats->NowNanos();
      args.stats->Record(*n.node, *n.device, now, now, absl::MakeConstSpan(slots + n.first_output, n.num_outputs));
    }
    const int* const releases = releases_.data() + n.first_release;
    for (int k = 0; k < n.num_releases; ++k) slots[releases[k]].Reset();
  }
  MR_RETURN_IF_ERROR(ReadFetches(slots, fetches));
  ResetSlots(slots);
  // Only after success: a run that still holds values is not reused.
  SequentialRun* none = nullptr;
  if (spare_.compare_exchange_strong(none, run.get(), std::memory_order_release, std::memory_order_relaxed)) {
    run.release();
  } else {
    MutexLock lock(&mu_);
    idle_.push_back(std::move(run));
  }
  return absl::OkStatus();
}

Status Plan::RunAndWait(const RunArgs& args, absl::Span<Tensor> fetches) {
  Notification finished;
  Status result;
  RunAsync(args, fetches, [&](Status status) {
    result = std::move(status);
    finished.Notify();
  });
  finished.Wait();
  return result;
}

std::unique_ptr<Plan::SequentialRun> Plan::TakeIdleRun() {
  if (SequentialRun* const spare = spare_.exchange(nullptr, std::memory_order_acquire)) {
    return std::unique_ptr<SequentialRun>(spare);
  }
  {
    MutexLock lock(&mu_);
    if (!idle_.empty()) {
      std::unique_ptr<SequentialRun> run = std::move(idle_.back());
      idle_.pop_back();
      return run;
    }
  }
  auto run = std::make_unique<SequentialRun>();
  run->slots.resize(num_slots_);
  SetConstants(run->slots.data());
  return run;
}

void Plan::SetConstants(Tensor* slots) const {
  for (const auto& [slot, value] : constants_) slots[slot] = value;
}

Status Plan::ReadFetches(const Tensor* slots, absl::Span<Tensor> fetches) const {
  for (size_t i = 0; i < fetch_slots_.size(); ++i) {
    const Tensor& value = slots[fetch_slots_[i]];
    if (!value.IsInitialized()) {
      return is_sequential() ? Internal("the fetched tensor ", fetches_[i].name(), " was not computed")
                             : DeadFetchError(fetches_[i]);
    }
    if (IsRef(value.dtype())) {
      MR_ASSIGN_OR_RETURN(fetches[i], ReadReference(value));
    } else {
      fetches[i] = value;
    }
  }
  return absl::OkStatus();
}

void Plan::ResetSlots(Tensor* slots) const {
  for (const int slot : fetch_slots_) slots[slot].Reset();
  for (const int slot : feed_slots_) slots[slot].Reset();
  for (const auto& [slot, value] : constants_) {
    if (!slots[slot].IsInitialized()) slots[slot] = value;
  }
}

}  // namespace millrace
