#include "millrace/strategy/synchronous_strategy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/replica.h"
#include "millrace/base/log.h"
#include "millrace/collective/blocking.h"
#include "millrace/graph/device_name.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/strategy/broadcast_variables.h"
#include "millrace/strategy/distribute_dataset.h"
#include "millrace/strategy/gradient_buckets.h"
#include "millrace/strategy/group_exchange.h"
#include "millrace/strategy/on_read_variables.h"

namespace millrace {

StatusOr<std::unique_ptr<Strategy>> SynchronousStrategy::Make(std::string name, StrategyOptions options,
                                                              std::shared_ptr<WorkerGroup> workers, bool central) {
  if (options.devices.empty()) options.devices = {"/device:CPU:0"};
  if (!central) options.variable_device = options.devices[0];
  if (workers != nullptr && workers->size() == 1) workers = nullptr;
  std::unique_ptr<SynchronousStrategy> made(
      new SynchronousStrategy(std::move(name), std::move(options), std::move(workers), central));
  MR_RETURN_IF_ERROR(made->PlaceReplicas());
  return std::unique_ptr<Strategy>(std::move(made));
}

SynchronousStrategy::~SynchronousStrategy() {
  if (workers_ != nullptr) workers_->Leave().IgnoreError();
}

Status SynchronousStrategy::PlaceReplicas() {
  MR_RETURN_IF_ERROR(CheckAllReduceAlgorithm(options_.all_reduce_alg));
  if (options_.shards < 0) return InvalidArgument("the number of shards is ", options_.shards);
  if (options_.num_packs < 0) return InvalidArgument("the number of packs is ", options_.num_packs);
  if (options_.bucket_bytes < 1) return InvalidArgument("a bucket has ", options_.bucket_bytes, " bytes");
  std::vector<std::string> all_devices = options_.devices;
  all_devices.push_back(options_.variable_device);
  for (const std::string& device : all_devices) {
    MR_ASSIGN_OR_RETURN(const DeviceName parsed, DeviceName::Parse(device));
    if (parsed.job) {
      if (!central_) return InvalidArgument(name_, " trains on devices of its own process, not on '", device, "'");
      continue;
    }
    if (parsed.type == "CPU") cpu_devices_ = std::max(cpu_devices_, parsed.index.value_or(0) + 1);
    if (parsed.type == "GPU" && options_.devices.size() > 1)
      return Unimplemented(name_, " over several GPUs is not available yet; one GPU for each worker is");
  }
  layout_.num_workers = workers_ == nullptr ? 1 : workers_->size();
  layout_.rank = workers_ == nullptr ? 0 : workers_->rank();
  layout_.fixed_order = options_.shards > 0;
  layout_.algorithm = options_.all_reduce_alg;
  const int devices = static_cast<int>(options_.devices.size());
  const int places = layout_.num_workers * devices;
  const int replicas = options_.shards > 0 ? options_.shards : places;
  if (replicas < places) {
    return InvalidArgument(name_, ": ", replicas, " logical shards are not enough for ", layout_.num_workers,
                           layout_.num_workers == 1 ? " worker" : " workers", " with ", devices,
                           devices == 1 ? " device each" : " devices each", "; raise StrategyOptions::shards");
  }
  layout_.owners.clear();
  for (const int place : EvenOwners(replicas, places)) {
    layout_.owners.push_back(place / devices);
    if (place / devices == layout_.rank) devices_.push_back(options_.devices[place % devices]);
  }
  return absl::OkStatus();
}

Scope SynchronousStrategy::NewScope() {
  Scope root = Scope::NewRoot().WithDevice(options_.variable_device);
  api_internal::ScopeSettings settings = api_internal::SettingsOf(root);
  settings.seeds_by_name = true;
  root = api_internal::ScopeAccess::Of(std::move(settings));
  root = root.WithVariableCreator([device = options_.variable_device](
                                      const Scope& scope, const VariableRequest& request, const NextVariable& next) {
    return next(request.options.local ? scope : scope.WithDevice(device), request);
  });
  root = api_internal::RecordAggregations(root, aggregations_);
  root = OnReadVariables::Attach(root, layout_, devices_);
  GlobalStep(root);
  return root;
}

Scope SynchronousStrategy::ReplicaScope(const Scope& scope, int index, const Output& weight) {
  const int replica = first_replica() + index;
  if (index == 0) assignments_ = std::make_shared<api_internal::ReplicaAssignments>();
  const Scope made = api_internal::ReplicaScope(scope.WithDevice(devices_[index]), absl::StrCat("replica_", replica),
                                                replica, num_replicas(), assignments_, weight);
  if (index == 0) first_prefix_ = made.prefix() + "/";
  return made;
}

void SynchronousStrategy::EndReplicas(const Scope& scope) {
  MergeAssignments(scope, layout_, *assignments_, *aggregations_);
  assignments_.reset();
  if (!layout_.fixed_order) return;
  for (const Node* node : scope.graph()->nodes()) {
    if (!node->op().Has(OpTrait::kRandom) || !absl::StartsWith(node->name(), first_prefix_)) continue;
    MR_LOG(Warning, "node ", node->name(), " (op ", node->type(), ") draws random numbers that depend on how many ",
           "replicas a worker has: the weights will differ on other numbers of workers; layers::Dropout and stateless ",
           "random ops with the step in their seeds do not");
    return;
  }
}

Output SynchronousStrategy::Reduce(const Scope& scope, ReplicaReduction reduction, const PerReplica& values) {
  const Scope s = scope.ForComposite("reduce");
  if (!s.ok()) return Output(s, Endpoint{});
  if (values.values.empty()) {
    s.UpdateStatus(InvalidArgument("Reduce: there is no value"));
    return Output(s, Endpoint{});
  }
  // The name of the first worker's replica would not be that of the others.
  const std::vector<Output> counted = Counted(s, values.values, values.weights, reduction == ReplicaReduction::kMean);
  if (!s.ok()) return Output(s, Endpoint{});
  const std::vector<Output> sums = SumOverReplicas(s, layout_, {.key = s.prefix(), .values = {counted}});
  if (!s.ok() || sums.empty()) return Output(s, Endpoint{});
  return reduction == ReplicaReduction::kMean ? MeanOf(s, sums[0], num_replicas()) : sums[0];
}

Operation SynchronousStrategy::Minimize(const Scope& scope, Optimizer& optimizer, const PerReplica& losses,
                                        const MinimizeOptions& options) {
  const Operation nothing(scope, nullptr);
  if (!scope.ok()) return nothing;
  std::vector<Output> needed = losses.values;
  needed.insert(needed.end(), losses.weights.begin(), losses.weights.end());
  const std::vector<Operation> before = CollectiveOpsOfStep(scope, needed);
  const std::vector<GradAndVar> gradients =
      MeanGradients(scope, layout_, losses, options.variables,
                    {.bucket_bytes = options_.bucket_bytes, .num_packs = options_.num_packs});
  if (!scope.ok()) return nothing;
  // All workers run the same collective ops in each step, whoever fetches their results.
  const Scope after = before.empty() ? scope : scope.WithControlDependencies(before);
  const Operation train =
      optimizer.ApplyGradients(after, gradients,
                               {.global_step = options.global_step ? *options.global_step : GlobalStep(scope),
                                .run_update_ops = options.run_update_ops});
  const OnReadVariables* const on_read = OnReadVariables::Of(scope);
  if (!scope.ok() || on_read == nullptr || !options.run_update_ops) return train;
  std::vector<Operation> all = on_read->Save(scope.WithoutOpName(), UpdateOps(scope));
  if (all.empty() || !scope.ok()) return train;
  all.push_back(train);
  return Group(scope.WithOpName("train_and_save"), all);
}

Output SynchronousStrategy::ReadVariable(const Scope& scope, const Var& variable) {
  const OnReadVariables* const on_read = OnReadVariables::Of(scope);
  const Output value = on_read == nullptr || !scope.ok() ? Output() : on_read->Read(scope, variable);
  return value.empty() && scope.ok() ? variable.Read(scope) : value;
}

StatusOr<Dataset> SynchronousStrategy::DistributeDataset(const Dataset& examples, const DistributeOptions& options) {
  return ExamplesOfReplicas(examples, num_replicas(), layout_.local(), options);
}

StatusOr<Dataset> SynchronousStrategy::DistributeFiles(const Dataset& files, const FlatMapFn& open,
                                                       const DistributeOptions& options) {
  return FilesOfReplicas(files, open, num_replicas(), layout_.local(), options);
}

StatusOr<std::unique_ptr<DatasetIterator>> SynchronousStrategy::MakeIterator(const Dataset& batches,
                                                                             bool drop_remainder) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> own, batches.MakeIterator());
  if (workers_ == nullptr || batches.Cardinality() == kInfiniteCardinality) return own;
  return EndsTogether(std::move(own), workers_.get(), drop_remainder ? 0 : local_replicas());
}

StatusOr<std::string> SynchronousStrategy::TextOfChief(const std::string& own) {
  if (workers_ == nullptr) return own;
  // The others add nothing to it.
  const std::string part = is_chief() ? own : "";
  MR_ASSIGN_OR_RETURN(const Tensor text,
                      workers_->AllGather(Tensor::FromVector(std::vector<uint8_t>(part.begin(), part.end()))));
  return std::string(text.data<uint8_t>(), text.data<uint8_t>() + text.num_elements());
}

StatusOr<SessionOptions> SynchronousStrategy::MakeSessionOptions(SessionOptions options) {
  options.cpu_devices = std::max(options.cpu_devices, cpu_devices_);
  if (workers_ == nullptr) return options;
  if (options.resources == nullptr) options.resources = std::make_shared<ResourceManager>();
  // Sessions may share their resources.
  MR_RETURN_IF_ERROR(options.resources
                         ->LookupOrCreate<WorkerExchange>(WorkerExchange::kContainer, WorkerExchange::kName,
                                                          [&]() -> StatusOr<RefPtr<WorkerExchange>> {
                                                            return NewGroupExchange(workers_, options_.group.timeout);
                                                          })
                         .status());
  if (options.waits == nullptr) options.waits = std::shared_ptr<WaitRegistry>(workers_, workers_->server()->waits());
  return options;
}

StatusOr<std::unique_ptr<MonitoredSession>> SynchronousStrategy::TrainingSession(
    const Scope& scope, MonitoredTrainingSessionOptions options) {
  if (!options.master.empty() && !central_) {
    return InvalidArgument(name_, " trains in this process, not at '", options.master, "'");
  }
  MR_ASSIGN_OR_RETURN(options.session, MakeSessionOptions(std::move(options.session)));
  if (!is_chief()) {
    // Every worker has variables of its own, which it initialises; the chief's replace them.
    options.checkpoint_dir.clear();
    options.checkpoint_filename_with_path.clear();
    options.summary_dir.clear();
    options.chief_only_hooks.clear();
  }
  options.is_chief = true;
  options.recover = false;
  if (workers_ != nullptr) {
    options.hooks.insert(options.hooks.begin(),
                         NewBroadcastVariablesHook({.is_root = is_chief(), .after = [](const Scope& s) {
                                                      const OnReadVariables* const on_read = OnReadVariables::Of(s);
                                                      return on_read == nullptr ? std::vector<Operation>()
                                                                                : on_read->Initializers(s);
                                                    }}));
  }
  return MonitoredTrainingSession(scope, std::move(options));
}

StatusOr<std::unique_ptr<Strategy>> OneDeviceStrategy(StrategyOptions options) {
  if (options.devices.size() > 1) {
    return InvalidArgument("OneDevice has ", options.devices.size(), " devices; MirroredStrategy takes several");
  }
  return SynchronousStrategy::Make("OneDevice", std::move(options), nullptr);
}

StatusOr<std::unique_ptr<Strategy>> MirroredStrategy(StrategyOptions options) {
  return SynchronousStrategy::Make("Mirrored", std::move(options), nullptr);
}

StatusOr<std::unique_ptr<Strategy>> CentralStorageStrategy(StrategyOptions options) {
  return SynchronousStrategy::Make("CentralStorage", std::move(options), nullptr, /*central=*/true);
}

StatusOr<std::unique_ptr<Strategy>> MultiWorkerMirroredStrategy(const TaskConfig& config, StrategyOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<WorkerGroup> workers, WorkerGroup::Start(config, options.group));
  return SynchronousStrategy::Make("MultiWorkerMirrored", std::move(options), std::move(workers));
}

StatusOr<std::unique_ptr<Strategy>> MultiWorkerMirroredStrategy(StrategyOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<WorkerGroup> workers, WorkerGroup::FromEnvironment(options.group));
  return SynchronousStrategy::Make("MultiWorkerMirrored", std::move(options), std::move(workers));
}

}  // namespace millrace
