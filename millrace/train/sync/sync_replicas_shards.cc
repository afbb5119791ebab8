#include "millrace/train/sync/sync_replicas_shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// Builds the nodes of one call of MinimizeShards. A phase returns false if the scope has an error.
class ShardsBuilder {
 public:
  ShardsBuilder(const SyncReplicasOptions& options, const Scope& scope, const Var& global_step)
      : options_(options),
        s_(scope.ForComposite(options.name)),
        home_(s_.ColocateWith(global_step.handle())),
        local_(LocalShards(options)),
        local_step_(LocalVariable::OfStep(s_, home_, options.name)),
        chief_began_(home_.WithOpName("chief_began"), DType::kBool, Shared("chief_began")),
        signal_(
            Op(home_.WithOpName("step_signal"), "MillraceStepSignal", {}, {{"shared_name", Shared("step_signal")}})),
        nodes_(std::make_shared<SyncReplicasNodes>(SyncReplicasNodes{.home = home_})) {
    nodes_->global_step = global_step;
    nodes_->replicas_to_aggregate = options.replicas_to_aggregate;
    nodes_->total_num_replicas = options.total_num_replicas;
    nodes_->fixed_order = true;
    nodes_->local_step = local_step_.Read(s_);
    nodes_->local_step_is_set = Op(home_, "VarIsInitializedOp", {local_step_.handle});
  }

  bool AddGradients(const ShardModel& model, const std::vector<Output>& losses, std::vector<Var> variables);
  // What the model itself assigns, such as moving averages: the update makes one assignment of it.
  bool AddAssignments(const ShardModel& model);
  bool AddUpdate(const Scope& scope, Optimizer* optimizer);
  bool AddBeginAndEnd();
  Operation TrainOp();
  std::shared_ptr<SyncReplicasNodes> TakeNodes() { return std::move(nodes_); }

 private:
  // What one accumulator is given.
  struct ShardValues {
    Var variable;
    std::string name;  // of the accumulator
    std::vector<Gradient> values = {};
    bool mean = true;
    bool first_only = false;
  };

  std::string Shared(absl::string_view what) const { return absl::StrCat(options_.name, "/", what); }
  bool Wrong(absl::string_view what) const {
    s_.UpdateStatus(InvalidArgument(options_.name, ": ", what));
    return false;
  }
  // Adds an accumulator, gives it this worker's values, and returns what the update takes.
  Gradient Accumulate(const ShardValues& all);
  Output Await(const Scope& scope, const Input& step) const {
    return Op(scope.ColocateWith(signal_), "MillraceStepSignalAwait", {signal_, step});
  }
  Operation Signal(const Scope& scope, const Output& step) const {
    return AddOp(scope.ColocateWith(signal_), "MillraceStepSignalSet", {signal_, step});
  }

  const SyncReplicasOptions& options_;
  const Scope s_;
  const Scope home_;  // colocated with the global step
  const ShardRange local_;
  const LocalVariable local_step_, chief_began_;
  const Output signal_;
  std::shared_ptr<SyncReplicasNodes> nodes_;
  std::vector<Output> accumulators_, dropped_;
  std::vector<Operation> given_, assigned_;
  std::vector<GradAndVar> gathered_;
};

Output AsInt64(const Scope& scope, const Output& value) {
  return value.dtype() == DType::kInt64 ? value : Op(scope, "Cast", {value}, {{"DstT", DType::kInt64}});
}

Gradient ShardsBuilder::Accumulate(const ShardValues& all) {
  bool sparse = true;
  for (const Gradient& value : all.values) sparse = sparse && value.is_slices();
  const DType dtype = all.variable.dtype();
  const Scope at = s_.WithPrefix(absl::StrCat(s_.prefix(), "/", all.variable.var_name()));
  const int shards = all.first_only ? 1 : options_.shards;
  const Output handle = Op(at.WithOpName(all.name).ColocateWith(all.variable.handle()), "MillraceShardAccumulator", {},
                           {{"dtype", dtype},
                            {"shape", all.variable.shape()},
                            {"shards", shards},
                            {"sparse", sparse},
                            {"mean", all.mean},
                            {"shared_name", Shared(absl::StrCat(all.variable.var_name(), "/", all.name))}});
  if (!s_.ok()) return {};
  const Scope beside = at.ColocateWith(handle);
  accumulators_.push_back(handle);
  dropped_.push_back(Op(beside, "MillraceAccumulatorNumDropped", {handle}));
  if (sparse) {
    // Rows are not added up here: their sum would need as many rows, and an order of its own.
    for (int shard = local_.first; shard < local_.last; ++shard) {
      const IndexedSlices& rows = all.values[shard - local_.first].slices();
      given_.push_back(AddOp(beside.WithOpName("apply_grad"), "MillraceShardAccumulatorApplyRows",
                             {handle, nodes_->local_step, rows.values, AsInt64(s_, rows.indices)},
                             {{"first", shard}, {"last", shard + 1}}));
    }
  } else {
    std::vector<Output> dense;
    for (size_t i = 0; i < all.values.size(); ++i) dense.push_back(all.values[i].ToDense(s_));
    std::vector<ShardRange> nodes;
    if (!all.first_only) {
      nodes = LargestNodes(ShardOwners(options_), options_.worker_index);
    } else if (local_.first == 0) {
      nodes = {{0, 1}};
    }
    for (const ShardRange node : nodes) {
      given_.push_back(AddOp(beside.WithOpName("apply_grad"), "MillraceShardAccumulatorApply",
                             {handle, nodes_->local_step, api_internal::TreeSum(s_, dense, local_.first, node)},
                             {{"first", node.first}, {"last", node.last}}));
    }
  }
  const Scope take = beside.WithOpName("take_grad");
  if (!sparse) return Op(take, "AccumulatorTakeGradient", {handle, shards}, {{"dtype", dtype}});
  const Operation taken = AddOp(take, "SparseAccumulatorTakeGradient", {handle, shards}, {{"dtype", dtype}});
  if (taken.empty()) return {};
  return IndexedSlices{.values = taken.output(1), .indices = taken.output(0), .dense_shape = taken.output(2)};
}

bool ShardsBuilder::AddGradients(const ShardModel& model, const std::vector<Output>& losses,
                                 std::vector<Var> variables) {
  if (!s_.ok()) return false;
  if (losses.size() != model.scopes().size()) {
    return Wrong(
        absl::StrCat("there are ", losses.size(), " losses for the ", model.scopes().size(), " shards of this worker"));
  }
  if (variables.empty()) variables = TrainableVariables(s_);
  std::vector<ShardValues> all;
  for (const Var& variable : variables) all.push_back({.variable = variable, .name = "grad_accum"});
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses[i].empty()) return Wrong("a loss is empty");
    const std::vector<Gradient> gradients =
        Gradients(model.scopes()[i], {losses[i]}, std::vector<Output>(variables.begin(), variables.end()));
    if (!s_.ok()) return false;
    for (size_t v = 0; v < variables.size(); ++v) {
      if (i > 0 && gradients[v].empty() != all[v].values.empty()) {
        return Wrong(absl::StrCat("the loss of one shard depends on variable ", variables[v].var_name(),
                                  " and that of another does not"));
      }
      if (!gradients[v].empty()) all[v].values.push_back(gradients[v]);
    }
  }
  for (const ShardValues& values : all) {
    if (values.values.empty()) continue;
    gathered_.push_back({Accumulate(values), values.variable});
    if (!s_.ok()) return false;
    if (const PartialShape shape = values.variable.shape(); shape.IsFullyDefined())
      nodes_->gradient_bytes += shape.AsShape().num_elements() * SizeOf(values.variable.dtype());
  }
  return !gathered_.empty() || Wrong("the loss does not depend on any of the variables");
}

bool ShardsBuilder::AddAssignments(const ShardModel& model) {
  const auto& shards = model.assignments().replicas();
  if (const Status same = model.assignments().CheckSame(local_.first); !same.ok()) return Wrong(same.message());
  for (size_t i = 0; i < shards[0].size(); ++i) {
    const auto& one = shards[0][i];
    const auto found = model.aggregations().find(one.variable.handle().node());
    const VariableAggregation how = found == model.aggregations().end() ? VariableAggregation::kNone : found->second;
    if (how == VariableAggregation::kNone) {
      return Wrong(absl::StrCat("variable ", one.variable.var_name(),
                                " is assigned by shards and has no aggregation (VarOptions::aggregation)"));
    }
    if (!IsFloating(one.value.dtype())) {
      return Wrong(absl::StrCat("variable ", one.variable.var_name(), ", which shards assign, is ",
                                DTypeName(one.value.dtype()), ", and must be a floating-point number"));
    }
    ShardValues values{.variable = one.variable,
                       .name = absl::StrCat("assign_accum", i == 0 ? "" : absl::StrCat("_", i)),
                       .mean = how == VariableAggregation::kMean,
                       .first_only = how == VariableAggregation::kFirstReplica};
    for (const auto& shard : shards) values.values.push_back(shard[i].value);
    const Gradient taken = Accumulate(values);
    if (!s_.ok()) return false;
    assigned_.push_back(AddOp(s_.ColocateWith(one.variable.handle()), one.op.c_str(),
                              {one.variable.handle(), taken.dense()}, {{"dtype", one.value.dtype()}}));
  }
  return s_.ok();
}

bool ShardsBuilder::AddUpdate(const Scope& scope, Optimizer* optimizer) {
  const Scope outer = scope.WithoutOpName();
  const Operation applied =
      optimizer->ApplyGradients(assigned_.empty() ? outer : outer.WithControlDependencies(assigned_), gathered_,
                                {.global_step = nodes_->global_step, .run_update_ops = false});
  if (!s_.ok()) return false;
  const Output now = nodes_->global_step.Read(home_.WithControlDependencies({applied}));
  nodes_->update = Signal(s_.WithOpName("update"), now);
  return s_.ok();
}

bool ShardsBuilder::AddBeginAndEnd() {
  const Output begin = nodes_->global_step.Read(home_);
  std::vector<Operation> set;
  for (const Output& accumulator : accumulators_) {
    set.push_back(AddOp(s_.ColocateWith(accumulator), "AccumulatorSetGlobalStep", {accumulator, begin}));
  }
  if (!s_.ok()) return false;
  set.push_back(Signal(s_.WithControlDependencies(set), begin));
  nodes_->chief_init = chief_began_.Assign(s_.WithControlDependencies(set).WithOpName("chief_init"), true);
  // What is under way goes on.
  nodes_->chief_resume = AddOp(home_.WithOpName("chief_resume"), "NoOp", {});
  nodes_->step_now = Await(home_, int64_t{-1});
  nodes_->local_step_init = local_step_.Assign(s_.WithOpName("local_step_init"), nodes_->step_now);
  const std::string why =
      absl::StrCat("worker ", options_.worker_index, " of ", options_.total_num_replicas, " has ended");
  nodes_->release =
      AddOp(s_.WithOpName("release").ColocateWith(signal_), "MillraceStepSignalClose", {signal_}, {{"why", why}});
  nodes_->pass_on = nodes_->release;
  nodes_->AddReadiness(s_, chief_began_, Shared("chief_began"), dropped_);
  return s_.ok();
}

Operation ShardsBuilder::TrainOp() {
  // The next step begins when the update has been made, which needs what this worker gives.
  const Output now = Await(home_, nodes_->local_step);
  return local_step_.Assign(s_.WithOpName("train").WithControlDependencies(given_), now);
}

}  // namespace

Status CheckShards(const SyncReplicasOptions& options) {
  const int workers = options.total_num_replicas;
  if (options.shards < 1) return InvalidArgument(options.name, ": BuildShards needs SyncReplicasOptions::shards");
  if (options.replicas_to_aggregate != workers) {
    return InvalidArgument(
        options.name, ": replicas_to_aggregate is ", options.replicas_to_aggregate, " with ", workers,
        " workers; in fixed order every worker takes part in every step, as the result would depend ",
        "on which of them came first");
  }
  if (workers < 1 || options.shards < workers) {
    return InvalidArgument(options.name, ": ", options.shards, " logical shards are not enough for ", workers,
                           " workers; raise SyncReplicasOptions::shards");
  }
  if (options.worker_index < 0 || options.worker_index >= workers) {
    return InvalidArgument(options.name, ": there is no worker ", options.worker_index, " of ", workers);
  }
  return absl::OkStatus();
}

std::vector<int> ShardOwners(const SyncReplicasOptions& options) {
  return EvenOwners(options.shards, options.total_num_replicas);
}

ShardRange LocalShards(const SyncReplicasOptions& options) {
  const std::vector<int> owners = ShardOwners(options);
  const auto [first, last] = std::equal_range(owners.begin(), owners.end(), options.worker_index);
  return {static_cast<int>(first - owners.begin()), static_cast<int>(last - owners.begin())};
}

std::vector<Output> ShardModel::Build(const Scope& scope, const SyncReplicasOptions& options,
                                      const SyncReplicasOptimizer::ShardFn& model) {
  if (const Status right = CheckShards(options); !right.ok()) scope.UpdateStatus(right);
  if (!scope.ok()) return {};
  // With names, initial values do not depend on the number of shards that this worker builds.
  api_internal::ScopeSettings settings = api_internal::SettingsOf(scope);
  settings.seeds_by_name = true;
  const Scope named = api_internal::RecordAggregations(api_internal::ScopeAccess::Of(settings), aggregations_);
  auto& summaries = api_internal::StateOf(scope).summaries;
  const ShardRange local = LocalShards(options);
  std::vector<Output> losses;
  size_t kept = 0;
  for (int shard = local.first; shard < local.last; ++shard) {
    scopes_.push_back(
        api_internal::ReplicaScope(named, absl::StrCat("shard_", shard), shard, options.shards, assignments_));
    if (scope.ok()) losses.push_back(model(scopes_.back(), shard));
    if (!scope.ok()) return {};
    if (shard == local.first) kept = summaries.size();
    summaries.resize(kept);
  }
  return losses;
}

Operation MinimizeShards(const Scope& scope, const SyncReplicasOptions& sync, const ShardModel& model,
                         const std::vector<Output>& losses, Optimizer& optimizer, const MinimizeOptions& options,
                         std::shared_ptr<SyncReplicasNodes>* nodes) {
  ShardsBuilder builder(sync, scope, *options.global_step);
  if (!builder.AddGradients(model, losses, options.variables) || !builder.AddAssignments(model) ||
      !builder.AddUpdate(scope, &optimizer) || !builder.AddBeginAndEnd()) {
    return Operation(scope, nullptr);
  }
  Operation train = builder.TrainOp();
  *nodes = builder.TakeNodes();
  if (!options.run_update_ops) return train;
  std::vector<Operation> all = UpdateOps(scope);
  if (all.empty()) return train;
  all.push_back(train);
  return Group(scope.SubScope(sync.name).WithOpName("train_and_update"), all);
}

}  // namespace millrace
