// Strategies whose workers have equal variables and update them together. Internal to strategy/.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/strategy/replica_assignments.h"
#include "millrace/strategy/shard_reducer.h"
#include "millrace/strategy/strategy.h"

namespace millrace {

class SynchronousStrategy : public Strategy {
 public:
  // INVALID_ARGUMENT for options that make no sense. `workers` may be null: one worker. If `central`, variables are on
  // the options' variable_device and sessions may be at other tasks; otherwise, variables are on the first device.
  static StatusOr<std::unique_ptr<Strategy>> Make(std::string name, StrategyOptions options,
                                                  std::shared_ptr<WorkerGroup> workers, bool central = false);
  // Waits until the other workers have ended their work too. If they have not, all get an error that says so.
  ~SynchronousStrategy() override;

  const std::string& name() const override { return name_; }
  int num_workers() const override { return layout_.num_workers; }
  int worker_index() const override { return layout_.rank; }
  int num_replicas() const override { return layout_.num_replicas(); }
  int first_replica() const override { return layout_.local().first; }
  int local_replicas() const override { return layout_.local().size(); }

  Scope NewScope() override;
  Output Reduce(const Scope& scope, ReplicaReduction reduction, const PerReplica& values) override;
  Output ReadVariable(const Scope& scope, const Var& variable) override;
  Operation Minimize(const Scope& scope, Optimizer& optimizer, const PerReplica& losses,
                     const MinimizeOptions& options) override;
  StatusOr<Dataset> DistributeDataset(const Dataset& examples, const DistributeOptions& options) override;
  StatusOr<Dataset> DistributeFiles(const Dataset& files, const FlatMapFn& open,
                                    const DistributeOptions& options) override;
  StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(const Dataset& batches, bool drop_remainder) override;
  StatusOr<std::string> TextOfChief(const std::string& own) override;
  StatusOr<SessionOptions> MakeSessionOptions(SessionOptions options) override;
  StatusOr<std::unique_ptr<MonitoredSession>> TrainingSession(const Scope& scope,
                                                              MonitoredTrainingSessionOptions options) override;

 protected:
  Scope ReplicaScope(const Scope& scope, int index, const Output& weight) override;
  void EndReplicas(const Scope& scope) override;

 private:
  SynchronousStrategy(std::string name, StrategyOptions options, std::shared_ptr<WorkerGroup> workers, bool central)
      : name_(std::move(name)), options_(std::move(options)), workers_(std::move(workers)), central_(central) {}
  Status PlaceReplicas();

  const std::string name_;
  StrategyOptions options_;
  const std::shared_ptr<WorkerGroup> workers_;  // null: one worker
  const bool central_;
  ReplicaLayout layout_;
  std::vector<std::string> devices_;  // of each local replica
  int cpu_devices_ = 1;
  const std::shared_ptr<api_internal::VariableAggregations> aggregations_ =
      std::make_shared<api_internal::VariableAggregations>();
  // What the replicas of the current Run have assigned so far.
  std::shared_ptr<api_internal::ReplicaAssignments> assignments_;
  // Of the nodes of this worker's first replica.
  std::string first_prefix_;
};

}  // namespace millrace
