#include "millrace/train/sync/sync_replicas_optimizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/train/sync/sync_replicas_hook.h"
#include "millrace/train/sync/sync_replicas_nodes.h"
#include "millrace/train/sync/sync_replicas_shards.h"

namespace millrace {
namespace {

const AttrList kInt64Components = {{"component_types", std::vector<DType>{DType::kInt64}}};

// An unbounded FIFO queue of int64 scalars.
struct CountQueue {
  CountQueue(const Scope& scope, const std::string& shared_name) {
    AttrList attrs = kInt64Components;
    attrs.push_back({"shapes", std::vector<PartialShape>{PartialShape(std::vector<int64_t>{})}});
    attrs.push_back({"shared_name", shared_name});
    handle = Op(scope, "FIFOQueueV2", {}, attrs);
  }
  Operation Enqueue(const Scope& scope, const Output& value) const {
    return AddOp(scope.ColocateWith(handle), "QueueEnqueueV2", {handle, InputList{value}});
  }
  // Enqueues the value `count` times.
  Operation Enqueue(const Scope& scope, const Output& value, const Output& count) const {
    const Scope s = scope.ColocateWith(handle);
    const Output values = Op(s, "Fill", {Op(s, "Reshape", {count, std::vector<int32_t>{1}}), value});
    return AddOp(s, "QueueEnqueueManyV2", {handle, InputList{values}});
  }
  Output Dequeue(const Scope& scope) const {
    return Op(scope.ColocateWith(handle), "QueueDequeueV2", {handle}, kInt64Components);
  }
  Operation Remove(const Scope& scope, const Output& count) const {
    return AddOp(scope.ColocateWith(handle), "QueueDequeueManyV2", {handle, count}, kInt64Components);
  }
  Output Size(const Scope& scope) const { return Op(scope.ColocateWith(handle), "QueueSizeV2", {handle}); }

  Output handle;
};

// Accumulates a variable's gradients.
struct VariableAccumulator {
  VariableAccumulator(const Scope& scope, const GradAndVar& pair, const std::string& shared_name)
      : sparse(pair.gradient.is_slices()),
        dtype(pair.variable.dtype()),
        handle(Op(scope.ColocateWith(pair.variable.handle()),
                  sparse ? "SparseConditionalAccumulator" : "ConditionalAccumulator", {},
                  {{"dtype", dtype}, {"shape", pair.variable.shape()}, {"shared_name", shared_name}})) {}

  Operation Apply(const Scope& scope, const Gradient& gradient, const Output& step) const {
    const Scope s = scope.ColocateWith(handle);
    if (!sparse) return AddOp(s, "AccumulatorApplyGradient", {handle, step, gradient.dense()});
    const IndexedSlices& slices = gradient.slices();
    const bool known = !slices.dense_shape.empty();
    const Input shape = known ? Input(AsInt64(s, slices.dense_shape)) : Input(std::vector<int64_t>{});
    return AddOp(s, "SparseAccumulatorApplyGradient", {handle, step, AsInt64(s, slices.indices), slices.values, shape},
                 {{"has_known_shape", known}});
  }
  Gradient Take(const Scope& scope, int count) const {
    const Scope s = scope.ColocateWith(handle);
    if (!sparse) return Op(s, "AccumulatorTakeGradient", {handle, count}, {{"dtype", dtype}});
    const Operation taken = AddOp(s, "SparseAccumulatorTakeGradient", {handle, count}, {{"dtype", dtype}});
    return IndexedSlices{.values = taken.output(1), .indices = taken.output(0), .dense_shape = taken.output(2)};
  }
  Operation SetGlobalStep(const Scope& scope, const Output& step) const {
    return AddOp(scope.ColocateWith(handle), "AccumulatorSetGlobalStep", {handle, step});
  }
  // Forgets gradients unless the training continues.
  Operation Begin(const Scope& scope, const Output& step, const Output& continues) const {
    return AddOp(scope.ColocateWith(handle), "MillraceAccumulatorBegin", {handle, step, continues});
  }
  Output HasBegun(const Scope& scope) const {
    return Op(scope.ColocateWith(handle), "MillraceAccumulatorHasBegun", {handle});
  }
  Output Count(const Scope& scope) const {
    return Op(scope.ColocateWith(handle), "AccumulatorNumAccumulated", {handle});
  }
  Output Dropped(const Scope& scope) const {
    return Op(scope.ColocateWith(handle), "MillraceAccumulatorNumDropped", {handle});
  }

  static Output AsInt64(const Scope& scope, const Output& value) {
    return value.dtype() == DType::kInt64 ? value : Op(scope, "Cast", {value}, {{"DstT", DType::kInt64}});
  }

  bool sparse;
  DType dtype;
  Output handle;
};

}  // namespace

SyncReplicasOptimizer::SyncReplicasOptimizer(std::unique_ptr<Optimizer> optimizer, SyncReplicasOptions options)
    : optimizer_(std::move(optimizer)), options_([&] {
        if (options.total_num_replicas == 0) options.total_num_replicas = options.replicas_to_aggregate;
        return std::move(options);
      }()) {}
SyncReplicasOptimizer::~SyncReplicasOptimizer() = default;

std::vector<GradAndVar> SyncReplicasOptimizer::ComputeGradients(const Scope& scope, const Output& loss,
                                                                const ComputeGradientsOptions& options) {
  return optimizer_->ComputeGradients(scope, loss, options);
}

Operation SyncReplicasOptimizer::Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options) {
  const std::vector<GradAndVar> gradients = ComputeGradients(
      scope.WithoutOpName(), loss,
      {.variables = options.variables, .colocate_gradients_with_ops = options.colocate_gradients_with_ops});
  return ApplyGradients(scope, gradients,
                        {.global_step = options.global_step, .run_update_ops = options.run_update_ops});
}

// Builds the nodes of one call of ApplyGradients in phases. A phase returns false if the scope has an error.
class SyncReplicasOptimizer::Builder {
 public:
  Builder(const SyncReplicasOptions& options, const Scope& scope, const Var& global_step)
      : options_(options),
        s_(scope.ForComposite(options.name)),
        home_(s_.ColocateWith(global_step.handle())),
        global_step_(global_step),
        nodes_(std::make_shared<Nodes>(Nodes{.home = home_})),
        local_step_(LocalVariable::OfStep(s_, home_, options.name)),
        chief_began_(home_.WithOpName("chief_began"), DType::kBool, Shared("chief_began")),
        tokens_(home_.WithOpName("sync_token_q"), Shared("sync_token_q")),
        announced_(home_.WithOpName("announced"), Shared("announced")) {
    nodes_->global_step = global_step;
    nodes_->replicas_to_aggregate = options.replicas_to_aggregate;
    nodes_->total_num_replicas = options.total_num_replicas;
    nodes_->token_queue = tokens_.handle;
    nodes_->local_step = local_step_.Read(s_);
  }

  bool AddWorkersStep(const std::vector<GradAndVar>& gradients);
  bool AddChiefsUpdate(const Scope& scope, Optimizer* optimizer);
  bool AddBeginOfSession();
  bool AddEndAndReadiness();
  Operation TrainOp(bool run_update_ops);
  std::shared_ptr<Nodes> TakeNodes() { return std::move(nodes_); }

 private:
  std::string Shared(absl::string_view what) const { return absl::StrCat(options_.name, "/", what); }
  bool Wrong(absl::string_view what) const {
    s_.UpdateStatus(InvalidArgument(options_.name, ": ", what));
    return false;
  }
  // Applies the gradient of each variable to its accumulator, and takes the mean for the chief.
  bool Accumulate(const std::vector<GradAndVar>& gradients, const Output& step);
  int MostTokens() const { return std::max(options_.replicas_to_aggregate, options_.total_num_replicas); }

  const SyncReplicasOptions& options_;
  const Scope s_;
  const Scope home_;  // colocated with the global step
  const Var& global_step_;
  std::shared_ptr<Nodes> nodes_;
  const LocalVariable local_step_, chief_began_;
  const CountQueue tokens_, announced_;
  std::vector<VariableAccumulator> accumulators_;
  std::vector<Operation> given_;
  std::vector<GradAndVar> gathered_;
  std::vector<Output> dropped_;
  Output begin_;
  Operation train_;
};

bool SyncReplicasOptimizer::Builder::Accumulate(const std::vector<GradAndVar>& gradients, const Output& step) {
  for (const GradAndVar& pair : gradients) {
    if (pair.gradient.empty()) continue;
    if (pair.variable.empty()) return Wrong("a gradient belongs to an empty variable");
    const Scope at = s_.WithPrefix(absl::StrCat(s_.prefix(), "/", pair.variable.var_name()));
    accumulators_.emplace_back(at.WithOpName("grad_accum"), pair,
                               Shared(absl::StrCat(pair.variable.var_name(), "/grad_accum")));
    const VariableAccumulator& accumulator = accumulators_.back();
    given_.push_back(accumulator.Apply(at.WithOpName("apply_grad"), pair.gradient, step));
    gathered_.push_back({accumulator.Take(at.WithOpName("take_grad"), options_.replicas_to_aggregate), pair.variable});
    if (!s_.ok()) return false;
    if (const PartialShape shape = pair.variable.shape(); shape.IsFullyDefined()) {
      nodes_->gradient_bytes += shape.AsShape().num_elements() * SizeOf(pair.variable.dtype());
    }
  }
  return !gathered_.empty() || Wrong("the loss does not depend on any of the variables");
}

bool SyncReplicasOptimizer::Builder::AddWorkersStep(const std::vector<GradAndVar>& gradients) {
  if (!s_.ok()) return false;
  const Operation announce = announced_.Enqueue(s_.WithOpName("announce"), nodes_->local_step);
  if (!s_.ok()) return false;
  const Output step =
      Op(home_.WithControlDependencies({announce}).WithOpName("step"), "Identity", {nodes_->local_step});
  if (!Accumulate(gradients, step)) return false;
  // The worker queues for its token as soon as it has announced a gradient. If it queued only after applying the
  // gradient, a worker that is already at its next step could take its token. A token may be old, so the local step is
  // the global step at the time when the token is taken and the gradient applied.
  const Output token = tokens_.Dequeue(s_.WithOpName("take_token").WithControlDependencies({announce}));
  if (!s_.ok()) return false;
  std::vector<Operation> done = given_;
  done.push_back(token.op());
  const Output now = global_step_.Read(home_.WithControlDependencies(done));
  train_ = local_step_.Assign(s_.WithOpName("train"), now);
  return true;
}

// Update ops such as moving averages need a worker's batch, so they belong to the worker's step.
bool SyncReplicasOptimizer::Builder::AddChiefsUpdate(const Scope& scope, Optimizer* optimizer) {
  const Operation applied = optimizer->ApplyGradients(scope.WithoutOpName(), gathered_,
                                                      {.global_step = global_step_, .run_update_ops = false});
  if (!s_.ok()) return false;
  const Scope after = home_.WithControlDependencies({applied});
  const Output waiting = announced_.Size(after);
  // Not every announcement has a gradient: one that comes during the update is too late for this step and is dropped.
  // So there are always enough tokens for the gradients of the next step, whatever happened to those of this one.
  const Output missing_tokens =
      Op(home_, "Sub", {Input(options_.replicas_to_aggregate).In(home_), tokens_.Size(after)});
  const Output answers = Op(home_, "Maximum", {Op(home_, "Minimum", {waiting, MostTokens()}), missing_tokens});
  const Operation handed_out = tokens_.Enqueue(s_, global_step_.Read(after), answers);
  if (!s_.ok()) return false;
  nodes_->update = announced_.Remove(s_.WithControlDependencies({handed_out}).WithOpName("update"), waiting);
  return true;
}

// Announced gradients may have been taken by an update that never completed; `fewest` is the number that are still
// there. It is read first, so that what happens in between results in a token too many rather than one too few.
bool SyncReplicasOptimizer::Builder::AddBeginOfSession() {
  begin_ = global_step_.Read(home_);
  nodes_->local_step_init = local_step_.Assign(s_.WithOpName("local_step_init"), begin_);
  if (!s_.ok()) return false;
  // If a parameter server was started anew, so is the training. Gradients on others are of steps that it goes back
  // behind, and workers that repeat a run must give them again, as they give those that were lost.
  std::vector<Output> begun = {Op(home_, "VarIsInitializedOp", {chief_began_.handle})};
  for (const VariableAccumulator& accumulator : accumulators_) begun.push_back(accumulator.HasBegun(s_));
  if (!s_.ok()) return false;
  nodes_->continues = Op(home_.WithOpName("continues"), "All", {Stack(home_, begun), 0});
  std::vector<Operation> resume = {nodes_->local_step_init}, set = resume;
  std::vector<Output> counts;
  for (const VariableAccumulator& accumulator : accumulators_) {
    resume.push_back(accumulator.SetGlobalStep(s_, begin_));
    set.push_back(accumulator.Begin(s_, begin_, nodes_->continues));
    counts.push_back(accumulator.Count(s_.WithControlDependencies({set.back()})));
    dropped_.push_back(accumulator.Dropped(s_));
  }
  if (!s_.ok()) return false;
  nodes_->chief_resume = Group(s_.WithOpName("chief_resume"), resume);
  const Output fewest = Op(home_, "Min", {Stack(home_, counts), 0});
  if (!s_.ok()) return false;
  const Output open = announced_.Size(home_.WithControlDependencies({fewest.op()}));
  const Output lost = Op(home_, "Maximum", {Op(home_, "Sub", {open, fewest}), 0});
  const Operation answered = tokens_.Enqueue(s_, begin_, lost);
  if (!s_.ok()) return false;
  set.push_back(announced_.Remove(s_.WithControlDependencies({answered}), lost));
  if (!s_.ok()) return false;
  nodes_->chief_init = chief_began_.Assign(s_.WithControlDependencies(set).WithOpName("chief_init"), true);
  return true;
}

// At the end, whoever came too late for the last update waits for a token that no update hands out. It may be the
// chief itself, and so every worker that ends passes its token on.
bool SyncReplicasOptimizer::Builder::AddEndAndReadiness() {
  nodes_->release = tokens_.Enqueue(s_.WithOpName("release"), begin_, Input(MostTokens()).In(home_));
  nodes_->pass_on = tokens_.Enqueue(s_.WithOpName("pass_on"), begin_);
  nodes_->AddReadiness(s_, chief_began_, Shared("chief_began"), dropped_);
  return s_.ok();
}

Operation SyncReplicasOptimizer::Builder::TrainOp(bool run_update_ops) {
  if (!run_update_ops) return train_;
  std::vector<Operation> all = UpdateOps(s_);
  if (all.empty()) return train_;
  all.push_back(train_);
  return Group(s_.WithOpName("train_and_update"), all);
}

Operation SyncReplicasOptimizer::ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients,
                                                const ApplyGradientsOptions& options) {
  const Operation nothing(scope, nullptr);
  if (options_.shards > 0) {
    scope.UpdateStatus(InvalidArgument(options_.name, ": with shards, BuildShards makes the losses for Minimize"));
  }
  if (!MayBuild(scope, options.global_step)) return nothing;
  Builder builder(options_, scope, *options.global_step);
  if (!builder.AddWorkersStep(gradients) || !builder.AddChiefsUpdate(scope, optimizer_.get()) ||
      !builder.AddBeginOfSession() || !builder.AddEndAndReadiness()) {
    return nothing;
  }
  nodes_ = builder.TakeNodes();
  return builder.TrainOp(options.run_update_ops);
}

bool SyncReplicasOptimizer::MayBuild(const Scope& scope, const std::optional<Var>& global_step) const {
  const auto wrong = [&](auto... what) {
    scope.UpdateStatus(InvalidArgument(options_.name, ": ", what...));
    return false;
  };
  if (!scope.ok()) return false;
  if (nodes_ != nullptr) return wrong("one SyncReplicasOptimizer makes one training op");
  if (options_.replicas_to_aggregate < 1 || options_.total_num_replicas < 1) {
    return wrong("replicas_to_aggregate and total_num_replicas must be at least 1, but are ",
                 options_.replicas_to_aggregate, " and ", options_.total_num_replicas);
  }
  if (!global_step) return wrong("synchronous training needs a global step, as GlobalStep(scope) gives it");
  if (global_step->dtype() != DType::kInt64)
    return wrong("the global step must be of int64, but is of ", global_step->dtype());
  return true;
}

ShardRange SyncReplicasOptimizer::local_shards() const {
  return CheckShards(options_).ok() ? LocalShards(options_) : ShardRange();
}

std::vector<Output> SyncReplicasOptimizer::BuildShards(const Scope& scope, const ShardFn& model) {
  if (shards_ != nullptr) {
    scope.UpdateStatus(InvalidArgument(options_.name, ": BuildShards is called once"));
    return {};
  }
  shards_ = std::make_shared<ShardModel>();
  return shards_->Build(scope, options_, model);
}

Operation SyncReplicasOptimizer::Minimize(const Scope& scope, const std::vector<Output>& losses,
                                          const MinimizeOptions& options) {
  if (shards_ == nullptr) {
    scope.UpdateStatus(InvalidArgument(options_.name, ": the losses of shards come from BuildShards"));
  }
  if (!MayBuild(scope, options.global_step)) return Operation(scope, nullptr);
  Operation train = MinimizeShards(scope, options_, *shards_, losses, *optimizer_, options, &nodes_);
  shards_.reset();
  return train;
}

Operation SyncReplicasOptimizer::chief_init_op() const { return nodes_ ? nodes_->chief_init : Operation(); }
Operation SyncReplicasOptimizer::local_step_init_op() const { return nodes_ ? nodes_->local_step_init : Operation(); }
Operation SyncReplicasOptimizer::update_op() const { return nodes_ ? nodes_->update : Operation(); }
Output SyncReplicasOptimizer::num_dropped_per_variable() const {
  return nodes_ ? nodes_->num_dropped_per_variable : Output();
}
Output SyncReplicasOptimizer::num_dropped() const { return nodes_ ? nodes_->num_dropped : Output(); }
Output SyncReplicasOptimizer::local_step() const { return nodes_ ? nodes_->local_step : Output(); }
Output SyncReplicasOptimizer::ready_for_local_init(bool is_chief) const {
  return !nodes_ ? Output() : is_chief ? nodes_->chief_ready : nodes_->worker_ready;
}

StatusOr<Operation> SyncReplicasOptimizer::InitTokensOp(int num_tokens) const {
  if (nodes_ == nullptr)
    return FailedPrecondition(options_.name,
                              ": call Minimize or ApplyGradients before InitTokensOp and MakeSessionRunHook");
  if (nodes_->fixed_order) {
    if (num_tokens > 0)
      return InvalidArgument(options_.name, ": with shards every worker takes part in every step; there are no tokens");
    return AddOp(nodes_->home.WithOpName("init_tokens"), "NoOp", {});
  }
  const int least = options_.replicas_to_aggregate - options_.total_num_replicas;
  if (num_tokens == -1) num_tokens = options_.replicas_to_aggregate;
  if (num_tokens < 0 || num_tokens < least) {
    return InvalidArgument(options_.name, ": ", num_tokens,
                           " initial tokens are too few: ", options_.total_num_replicas, " workers need at least ",
                           std::max(least, 0), " to contribute ", options_.replicas_to_aggregate, " gradients");
  }
  const Scope& home = nodes_->home;
  if (num_tokens == 0) return AddOp(home.WithOpName("init_tokens"), "NoOp", {});
  const Output values = Op(home, "Fill", {std::vector<int32_t>{num_tokens}, nodes_->global_step.Read(home)});
  return AddOp(home.WithOpName("init_tokens"), "QueueEnqueueManyV2", {nodes_->token_queue, InputList{values}});
}

QueueRunner SyncReplicasOptimizer::ChiefQueueRunner() const {
  return QueueRunner({.name = absl::StrCat(options_.name, "/chief"), .enqueue_ops = {update_op()}});
}

std::unique_ptr<SessionRunHook> SyncReplicasOptimizer::MakeSessionRunHook(bool is_chief, int num_tokens) const {
  // A wrong number of tokens, or a call out of order, is reported by the session that the hook is given to.
  class Broken : public SessionRunHook {
   public:
    explicit Broken(Status status) : status_(std::move(status)) {}
    Status Begin(const Scope&) override { return status_; }
    Status AfterCreateSession(ClientSession*, Coordinator*) override { return status_; }

   private:
    const Status status_;
  };
  StatusOr<Operation> init_tokens = InitTokensOp(num_tokens);
  if (!init_tokens.ok()) return std::make_unique<Broken>(init_tokens.status());
  return std::make_unique<SyncReplicasHook>(nodes_, ChiefQueueRunner(), *std::move(init_tokens), is_chief,
                                            options_.name);
}

}  // namespace millrace
