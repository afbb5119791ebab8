#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/replica_device_setter.h"
#include "millrace/api/scope_state.h"
#include "millrace/cluster/server.h"
#include "millrace/strategy/distribute_dataset.h"
#include "millrace/strategy/replica_assignments.h"
#include "millrace/strategy/strategy.h"
#include "millrace/train/global_step.h"

namespace millrace {
namespace {

// Each worker has one replica and trains at its own pace; variables are on the parameter servers.
class AsynchronousStrategy final : public Strategy {
 public:
  // `server` is null without a cluster: everything is then in this process.
  AsynchronousStrategy(TaskConfig config, std::unique_ptr<Server> server)
      : config_(std::move(config)), server_(std::move(server)) {}

  const std::string& name() const override {
    static const std::string* const name = new std::string("ParameterServer");
    return *name;
  }
  bool is_synchronous() const override { return false; }
  int num_workers() const override { return std::max(1, config_.num_workers()); }
  int worker_index() const override { return config_.worker_index(); }
  int num_replicas() const override { return num_workers(); }
  int first_replica() const override { return worker_index(); }
  int local_replicas() const override { return 1; }

  Scope NewScope() override {
    Scope root = Scope::NewRoot();
    if (server_ != nullptr) {
      // All workers build the same graph, so all place a variable on the same ps.
      root = root.WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = config_.num_ps(),
                                                          .worker_device = config_.task.name(),
                                                          .ps_strategy = GreedyStrategy(config_.num_ps())}));
    }
    GlobalStep(root);
    return root;
  }

  Output Reduce(const Scope& scope, ReplicaReduction reduction, const PerReplica& values) override {
    const Scope s = scope.ForComposite("reduce");
    if (s.ok() && values.values.size() != 1) {
      s.UpdateStatus(InvalidArgument("Reduce: there are ", values.values.size(), " values for one replica"));
    }
    const std::vector<Output> counted =
        s.ok() ? Counted(s, values.values, values.weights, reduction == ReplicaReduction::kMean)
               : std::vector<Output>();
    return s.ok() ? Op(s, "Identity", {counted[0]}) : Output(s, Endpoint{});
  }

  Operation Minimize(const Scope& scope, Optimizer& optimizer, const PerReplica& losses,
                     const MinimizeOptions& options) override {
    if (scope.ok() && losses.values.size() != 1) {
      scope.UpdateStatus(InvalidArgument("Minimize: there are ", losses.values.size(), " losses for one replica"));
    }
    if (!scope.ok()) return Operation(scope, nullptr);
    MinimizeOptions given = options;
    if (!given.global_step) given.global_step = GlobalStep(scope);
    const std::vector<Output> counted = Counted(losses.scopes[0], losses.values, losses.weights, /*mean=*/true);
    return scope.ok() ? optimizer.Minimize(scope, counted[0], given) : Operation(scope, nullptr);
  }

  StatusOr<Dataset> DistributeDataset(const Dataset& examples, const DistributeOptions& options) override {
    return ExamplesOfReplicas(examples, num_replicas(), {first_replica(), first_replica() + 1}, options);
  }
  StatusOr<Dataset> DistributeFiles(const Dataset& files, const FlatMapFn& open,
                                    const DistributeOptions& options) override {
    return FilesOfReplicas(files, open, num_replicas(), {first_replica(), first_replica() + 1}, options);
  }
  StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(const Dataset& batches, bool) override {
    return batches.MakeIterator();
  }

  StatusOr<SessionOptions> MakeSessionOptions(SessionOptions options) override {
    if (server_ != nullptr && options.target.empty()) options.target = server_->target();
    return options;
  }
  StatusOr<std::unique_ptr<MonitoredSession>> TrainingSession(const Scope& scope,
                                                              MonitoredTrainingSessionOptions options) override {
    if (!options.master.empty()) {
      return InvalidArgument(name(), " trains at the server of its own task, not at '", options.master, "'");
    }
    if (server_ != nullptr) options.master = server_->target();
    options.is_chief = is_chief();
    return MonitoredTrainingSession(scope, std::move(options));
  }

 protected:
  // Nodes have the replica's name as a prefix; variables do not.
  Scope ReplicaScope(const Scope& scope, int, const Output&) override {
    api_internal::ScopeSettings settings = api_internal::SettingsOf(scope.WithReuse(Reuse::kAuto));
    settings.prefix = api_internal::TakeName(scope.WithoutOpName(), "replica");
    return api_internal::ScopeAccess::Of(std::move(settings));
  }
  void EndReplicas(const Scope&) override {}

 private:
  const TaskConfig config_;
  const std::unique_ptr<Server> server_;
};

}  // namespace

StatusOr<std::unique_ptr<Strategy>> ParameterServerStrategy(const TaskConfig& config, const ServerOptions& options) {
  if (config.cluster.jobs().empty()) return std::unique_ptr<Strategy>(new AsynchronousStrategy(config, nullptr));
  if (config.num_ps() == 0) {
    return InvalidArgument("ParameterServer needs tasks of job ps, and the cluster has none: ",
                           config.cluster.ToString());
  }
  if (!config.is_ps() && config.task.job != "chief" && config.task.job != "master" && config.task.job != "worker") {
    return InvalidArgument(config.task.name(), " neither serves variables (ps) nor trains (chief, worker)");
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                      Server::Start(config.cluster, config.task.job, config.task.index, options));
  if (config.is_ps()) {
    server->Join();
    return Unavailable("the server of ", config.task.name(), " was stopped");
  }
  return std::unique_ptr<Strategy>(new AsynchronousStrategy(config, std::move(server)));
}

StatusOr<std::unique_ptr<Strategy>> ParameterServerStrategy(const ServerOptions& options) {
  MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> config, TaskConfig::FromEnvironment());
  return ParameterServerStrategy(config.value_or(TaskConfig()), options);
}

}  // namespace millrace
