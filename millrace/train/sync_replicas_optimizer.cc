#include "millrace/train/sync_replicas_optimizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/graph/device_name.h"
#include "millrace/train/sync_replicas_nodes.h"

namespace millrace {
namespace {

const AttrList kInt64Components = {{"component_types", std::vector<DType>{DType::kInt64}}};

// A variable that is of this cluster's run only: no checkpoint has it, and no initializer.
struct LocalVariable {
  LocalVariable(const Scope& scope, DType dtype, const std::string& shared_name) : dtype(dtype) {
    handle = Op(scope, "VarHandleOp", {}, {{"dtype", dtype}, {"shape", PartialShape(std::vector<int64_t>{})}, {"shared_name", shared_name}});
  }
  Output Read(const Scope& scope) const { return Op(scope.ColocateWith(handle), "ReadVariableOp", {handle}, {{"dtype", dtype}}); }
  Operation Assign(const Scope& scope, const Input& value) const {
    return AddOp(scope.ColocateWith(handle), "AssignVariableOp", {handle, value}, {{"dtype", dtype}});
  }

  DType dtype;
  Output handle;
};

// A FIFO queue of int64 scalars without a limit.
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
  // `count` times the value.
  Operation Enqueue(const Scope& scope, const Output& value, const Output& count) const {
    const Scope s = scope.ColocateWith(handle);
    const Output values = Op(s, "Fill", {Op(s, "Reshape", {count, std::vector<int32_t>{1}}), value});
    return AddOp(s, "QueueEnqueueManyV2", {handle, InputList{values}});
  }
  Output Dequeue(const Scope& scope) const { return Op(scope.ColocateWith(handle), "QueueDequeueV2", {handle}, kInt64Components); }
  Operation Remove(const Scope& scope, const Output& count) const {
    return AddOp(scope.ColocateWith(handle), "QueueDequeueManyV2", {handle, count}, kInt64Components);
  }
  Output Size(const Scope& scope) const { return Op(scope.ColocateWith(handle), "QueueSizeV2", {handle}); }

  Output handle;
};

// Where a variable's gradients are gathered.
struct VariableAccumulator {
  VariableAccumulator(const Scope& scope, const GradAndVar& pair, const std::string& shared_name)
      : sparse(pair.gradient.is_slices()),
        dtype(pair.variable.dtype()),
        handle(Op(scope.ColocateWith(pair.variable.handle()), sparse ? "SparseConditionalAccumulator" : "ConditionalAccumulator", {},
                  {{"dtype", dtype}, {"shape", pair.variable.shape()}, {"shared_name", shared_name}})) {}

  Operation Apply(const Scope& scope, const Gradient& gradient, const Output& step) const {
    const Scope s = scope.ColocateWith(handle);
    if (!sparse) return AddOp(s, "AccumulatorApplyGradient", {handle, step, gradient.dense()});
    const IndexedSlices& slices = gradient.slices();
    const bool known = !slices.dense_shape.empty();
    const Input shape = known ? Input(AsInt64(s, slices.dense_shape)) : Input(std::vector<int64_t>{});
    return AddOp(s, "SparseAccumulatorApplyGradient", {handle, step, AsInt64(s, slices.indices), slices.values, shape}, {{"has_known_shape", known}});
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
  Output Count(const Scope& scope) const { return Op(scope.ColocateWith(handle), "AccumulatorNumAccumulated", {handle}); }
  Output Dropped(const Scope& scope) const { return Op(scope.ColocateWith(handle), "MillraceAccumulatorNumDropped", {handle}); }

  static Output AsInt64(const Scope& scope, const Output& value) {
    return value.dtype() == DType::kInt64 ? value : Op(scope, "Cast", {value}, {{"DstT", DType::kInt64}});
  }

  bool sparse;
  DType dtype;
  Output handle;
};

Output Stack(const Scope& scope, const std::vector<Output>& values) {
  return Op(scope, "Pack", {InputList(std::vector<Input>(values.begin(), values.end()))});
}

}  // namespace

SyncReplicasOptimizer::SyncReplicasOptimizer(std::unique_ptr<Optimizer> optimizer, SyncReplicasOptions options)
    : optimizer_(std::move(optimizer)), options_([&] {
        if (options.total_num_replicas == 0) options.total_num_replicas = options.replicas_to_aggregate;
        return std::move(options);
      }()) {}
SyncReplicasOptimizer::~SyncReplicasOptimizer() = default;

std::vector<GradAndVar> SyncReplicasOptimizer::ComputeGradients(const Scope& scope, const Output& loss, const ComputeGradientsOptions& options) {
  return optimizer_->ComputeGradients(scope, loss, options);
}

Operation SyncReplicasOptimizer::Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options) {
  const std::vector<GradAndVar> gradients =
      ComputeGradients(scope.WithoutOpName(), loss, {.variables = options.variables, .colocate_gradients_with_ops = options.colocate_gradients_with_ops});
  return ApplyGradients(scope, gradients, {.global_step = options.global_step, .run_update_ops = options.run_update_ops});
}

Operation SyncReplicasOptimizer::ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients, const ApplyGradientsOptions& options) {
  const Operation nothing(scope, nullptr);
  const auto wrong = [&](auto... what) {
    scope.UpdateStatus(InvalidArgument(options_.name, ": ", what...));
    return nothing;
  };
  if (!scope.ok()) return nothing;
  if (nodes_ != nullptr) return wrong("one SyncReplicasOptimizer makes one training op");
  if (options_.replicas_to_aggregate < 1 || options_.total_num_replicas < 1) {
    return wrong("replicas_to_aggregate and total_num_replicas must be at least 1, but are ", options_.replicas_to_aggregate, " and ",
                 options_.total_num_replicas);
  }
  if (!options.global_step) return wrong("synchronous training needs a global step, as GlobalStep(scope) gives it");
  const Var& global_step = *options.global_step;
  if (global_step.dtype() != DType::kInt64) return wrong("the global step must be of int64, but is of ", global_step.dtype());

  const Scope s = scope.ForComposite(options_.name);
  const Scope home = s.ColocateWith(global_step.handle());
  const auto shared = [&](absl::string_view what) { return absl::StrCat(options_.name, "/", what); };
  auto nodes = std::make_shared<Nodes>(Nodes{.home = home});
  nodes->global_step = global_step;
  nodes->replicas_to_aggregate = options_.replicas_to_aggregate;
  nodes->total_num_replicas = options_.total_num_replicas;

  // A local step on the worker would cost a message to the accumulators and one back: it is kept beside the global step under the worker's name, where it has one.
  const Operation anchor = AddOp(s.WithOpName("worker"), "NoOp", {});
  if (anchor.empty()) return nothing;
  const std::string worker = anchor.node()->requested_device();
  const StatusOr<DeviceName> device = DeviceName::Parse(worker);
  const bool named = device.ok() && device->job && device->task;
  const LocalVariable local_step(named ? home.WithOpName("local_step") : s.WithOpName("local_step").ColocateWith(anchor), DType::kInt64,
                                 named ? shared(absl::StrCat("local_step", worker)) : shared("local_step"));
  const LocalVariable chief_began(home.WithOpName("chief_began"), DType::kBool, shared("chief_began"));
  const CountQueue tokens(home.WithOpName("sync_token_q"), shared("sync_token_q"));
  const CountQueue announced(home.WithOpName("announced"), shared("announced"));
  nodes->token_queue = tokens.handle;
  nodes->local_step = local_step.Read(s);

  // What a worker does.
  const Operation announce = announced.Enqueue(s.WithOpName("announce"), nodes->local_step);
  if (!s.ok()) return nothing;
  const Output step = Op(home.WithControlDependencies({announce}).WithOpName("step"), "Identity", {nodes->local_step});
  std::vector<VariableAccumulator> accumulators;
  std::vector<Operation> given;
  std::vector<GradAndVar> gathered;
  for (const GradAndVar& pair : gradients) {
    if (pair.gradient.empty()) continue;
    if (pair.variable.empty()) return wrong("a gradient belongs to an empty variable");
    const Scope at = s.WithPrefix(absl::StrCat(s.prefix(), "/", pair.variable.var_name()));
    accumulators.emplace_back(at.WithOpName("grad_accum"), pair, shared(absl::StrCat(pair.variable.var_name(), "/grad_accum")));
    given.push_back(accumulators.back().Apply(at.WithOpName("apply_grad"), pair.gradient, step));
    gathered.push_back({accumulators.back().Take(at.WithOpName("take_grad"), options_.replicas_to_aggregate), pair.variable});
    if (!s.ok()) return nothing;
  }
  if (gathered.empty()) return wrong("the loss does not depend on any of the variables");
  // The worker stands in line for its token from the moment that it announced a gradient: were it to come after the gradient, another one that is already at its next could
  // be before it and take its token. A token may have lain there for a while: the step is what counts when it is taken and the gradient given.
  const Output token = tokens.Dequeue(s.WithOpName("take_token").WithControlDependencies({announce}));
  if (!s.ok()) return nothing;
  std::vector<Operation> done = given;
  done.push_back(token.op());
  const Output now = global_step.Read(home.WithControlDependencies(done));
  Operation train = local_step.Assign(s.WithOpName("train"), now);

  // What the chief does beside it. Moving averages and their kin need a worker's batch, and so are of its step.
  const Operation applied = optimizer_->ApplyGradients(scope.WithoutOpName(), gathered, {.global_step = global_step, .run_update_ops = false});
  if (!s.ok()) return nothing;
  const Scope after = home.WithControlDependencies({applied});
  const Output waiting = announced.Size(after);
  const int most = std::max(options_.replicas_to_aggregate, options_.total_num_replicas);
  // Not every announcement has a gradient: one that comes while the update is going on is too late for this step, and is dropped. With a token for each gradient that
  // the next step needs, whatever became of those of this one, the workers can make it.
  const Output missing_tokens = Op(home, "Sub", {Input(options_.replicas_to_aggregate).In(home), tokens.Size(after)});
  const Output answers = Op(home, "Maximum", {Op(home, "Minimum", {waiting, most}), missing_tokens});
  const Operation handed_out = tokens.Enqueue(s, global_step.Read(after), answers);
  if (!s.ok()) return nothing;
  nodes->update = announced.Remove(s.WithControlDependencies({handed_out}).WithOpName("update"), waiting);

  // At the beginning of a session. A gradient that an announcement was for may have been taken by an update that never ended: fewest says how many are there
  // still. It is read first, so that what comes in between makes a token too many and not one too few.
  const Output begin = global_step.Read(home);
  nodes->local_step_init = local_step.Assign(s.WithOpName("local_step_init"), begin);
  if (!s.ok()) return nothing;
  std::vector<Operation> set = {nodes->local_step_init};
  std::vector<Output> counts, dropped;
  for (const VariableAccumulator& accumulator : accumulators) {
    set.push_back(accumulator.SetGlobalStep(s, begin));
    counts.push_back(accumulator.Count(s));
    dropped.push_back(accumulator.Dropped(s));
  }
  if (!s.ok()) return nothing;
  const Output fewest = Op(home, "Min", {Stack(home, counts), 0});
  if (!s.ok()) return nothing;
  const Output open = announced.Size(home.WithControlDependencies({fewest.op()}));
  const Output lost = Op(home, "Maximum", {Op(home, "Sub", {open, fewest}), 0});
  const Operation answered = tokens.Enqueue(s, begin, lost);
  if (!s.ok()) return nothing;
  set.push_back(announced.Remove(s.WithControlDependencies({answered}), lost));
  if (!s.ok()) return nothing;
  nodes->chief_init = chief_began.Assign(s.WithControlDependencies(set).WithOpName("chief_init"), true);

  // At the end: whoever came too late for the last update waits for a token that no update hands out. It may be the chief itself, and so every worker that ends passes its
  // token on.
  nodes->release = tokens.Enqueue(s.WithOpName("release"), begin, Input(most).In(home));
  nodes->pass_on = tokens.Enqueue(s.WithOpName("pass_on"), begin);
  nodes->chief_ready = UninitializedVariables(s.WithoutDevice().WithDevice(global_step.handle().node()->requested_device()));
  const Output began = Op(home, "VarIsInitializedOp", {chief_began.handle});
  nodes->chief_began = began;
  const Output missing = Op(home, "Reshape", {Op(home, "Where", {Op(home, "LogicalNot", {Op(home, "Reshape", {began, std::vector<int32_t>{1}})})}), std::vector<int32_t>{-1}});
  const Output names = Op(home, "GatherV2", {std::vector<std::string>{shared("chief_began")}, missing, 0});
  nodes->worker_ready = Op(home.WithOpName("ready_for_local_init"), "ConcatV2", {InputList{nodes->chief_ready, names}, 0});
  nodes->num_dropped_per_variable = Stack(home.WithOpName("num_dropped_per_variable"), dropped);
  nodes->num_dropped = Op(home.WithOpName("num_dropped"), "Max", {nodes->num_dropped_per_variable, 0});
  if (!s.ok()) return nothing;

  if (options.run_update_ops) {
    std::vector<Operation> all = UpdateOps(s);
    if (!all.empty()) {
      all.push_back(train);
      train = Group(s.WithOpName("train_and_update"), all);
    }
  }
  nodes_ = std::move(nodes);
  return train;
}

Operation SyncReplicasOptimizer::chief_init_op() const { return nodes_ ? nodes_->chief_init : Operation(); }
Operation SyncReplicasOptimizer::local_step_init_op() const { return nodes_ ? nodes_->local_step_init : Operation(); }
Operation SyncReplicasOptimizer::update_op() const { return nodes_ ? nodes_->update : Operation(); }
Output SyncReplicasOptimizer::num_dropped_per_variable() const { return nodes_ ? nodes_->num_dropped_per_variable : Output(); }
Output SyncReplicasOptimizer::num_dropped() const { return nodes_ ? nodes_->num_dropped : Output(); }
Output SyncReplicasOptimizer::local_step() const { return nodes_ ? nodes_->local_step : Output(); }
Output SyncReplicasOptimizer::ready_for_local_init(bool is_chief) const {
  return !nodes_ ? Output() : is_chief ? nodes_->chief_ready : nodes_->worker_ready;
}

StatusOr<Operation> SyncReplicasOptimizer::InitTokensOp(int num_tokens) const {
  if (nodes_ == nullptr) return FailedPrecondition(options_.name, ": call Minimize or ApplyGradients before the tokens are asked for");
  const int least = options_.replicas_to_aggregate - options_.total_num_replicas;
  if (num_tokens == -1) num_tokens = options_.replicas_to_aggregate;
  if (num_tokens < 0 || num_tokens < least) {
    return InvalidArgument(options_.name, ": ", num_tokens, " tokens to begin with are too few: ", options_.total_num_replicas,
                           " workers need at least ", std::max(least, 0), " more to give ", options_.replicas_to_aggregate, " gradients");
  }
  const Scope& home = nodes_->home;
  if (num_tokens == 0) return AddOp(home.WithOpName("init_tokens"), "NoOp", {});
  const Output values = Op(home, "Fill", {std::vector<int32_t>{num_tokens}, nodes_->global_step.Read(home)});
  return AddOp(home.WithOpName("init_tokens"), "QueueEnqueueManyV2", {nodes_->token_queue, InputList{values}});
}

QueueRunner SyncReplicasOptimizer::ChiefQueueRunner() const {
  return QueueRunner({.name = absl::StrCat(options_.name, "/chief"), .enqueue_ops = {update_op()}});
}

}  // namespace millrace
