// Synchronous trainings (SyncReplicasOptimizer) while everything fails.
#include "millrace/api/op_call.h"
#include "millrace/train/sim/storm_run_testing.h"
#include "millrace/train/sync/sync_replicas_optimizer.h"

namespace millrace {
namespace {

// Two variables, each of whose gradients is 1 on every worker: after an update both are smaller by 1, and the global
// step is larger by 1, whoever took part. Their accumulators are on two tasks if there are two parameter servers.
struct SyncModel {
  SyncModel(int worker, int ps_tasks, const SyncReplicasOptions& options)
      : scope(Scope::NewRoot().WithDeviceFunction(
            ReplicaDeviceSetter({.ps_tasks = ps_tasks, .worker_device = absl::StrCat("/job:worker/task:", worker)}))),
        variables({Var(scope, "a", 0.0f), Var(scope, "b", 0.0f)}),
        global_step(GlobalStep(scope)),
        sync(std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = 1.0}),
             options) {
    const Output loss = Op(scope, "AddV2", {variables[0], variables[1]});
    train = sync.Minimize(scope, loss, {.global_step = global_step});
    for (const Var& variable : variables) {
      const Scope s = scope.ColocateWith(variable.handle());
      const Output accumulator =
          Op(s, "ConditionalAccumulator", {},
             {{"dtype", DType::kFloat},
              {"shape", PartialShape(Shape())},
              {"shared_name", absl::StrCat(options.name, "/", variable.var_name(), "/grad_accum")}});
      waiting.push_back(Op(s, "AccumulatorNumAccumulated", {accumulator}));
    }
  }

  Scope scope;
  std::vector<Var> variables;
  Var global_step;
  SyncReplicasOptimizer sync;
  Operation train;
  std::vector<Output> waiting;  // gradients in the accumulators
};

struct SyncStormOptions {
  StormOptions storm;
  int aggregate = 2;
  int num_tokens = 0;
};

// All programs train until the global step has reached its last value, as with a StopAtStepHook.
class SyncStormRun : public StormRun {
 public:
  SyncStormRun(uint64_t seed, const SyncStormOptions& options)
      : StormRun(seed, options.storm),
        sync_(options),
        replicas_{.replicas_to_aggregate = options.aggregate, .total_num_replicas = options.storm.workers} {}
  ~SyncStormRun() override { Close(); }

 private:
  void RunProgram(SimProgram& program, int worker) override {
    SyncModel model(worker, options_.ps, replicas_);
    const Hooks hooks = {std::shared_ptr<SessionRunHook>(model.sync.MakeSessionRunHook(worker == 0, sync_.num_tokens)),
                         StopAt(options_.steps)};
    if (worker == 0) ++chiefs_;
    StatusOr<std::unique_ptr<MonitoredSession>> made =
        worker == 0 ? ChiefSession(program, model.scope, hooks) : WorkerSession(program, model.scope, worker, hooks);
    Status status = made.status();
    int deaths = ps_deaths_;
    while (status.ok() && !(*made)->ShouldStop()) {
      deaths = ps_deaths_;
      status = (*made)->Run(model.train);
      ++(status.ok() ? acknowledged_ : unknown_);
    }
    if (status.ok() && worker == 0) {
      // What has been trained is lost with a parameter server, and only the chief restores it.
      if (ps_deaths_ > deaths) return;
      over_ = true;
    }
    if (status.ok()) status = (*made)->Close();
    // The last one sees what is there when nobody trains any more. A lost session at the very end is a failure of the
    // program: it is started again, and ends at once.
    if (IsSessionLost(status)) return;
    if (status.ok() && std::count_if(workers_.begin(), workers_.end(),
                                     [](const WorkerState& w) { return w.succeeded; }) == options_.workers - 1) {
      status = Observe(program, worker);
      if (IsSessionLost(status)) return;
    }
    NoteEnd(program, worker, status);
  }

  Status Observe(SimProgram& program, int worker) {
    SyncModel model(worker, options_.ps, replicas_);
    MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(model.scope, Target(worker)));
    MR_ASSIGN_OR_RETURN(const Tensors values,
                        session.Run({model.variables[0], model.variables[1], model.global_step, model.waiting[0],
                                     model.waiting[1], model.sync.num_dropped_per_variable()}));
    for (int i = 0; i < 2; ++i) {
      values_[i] = static_cast<int64_t>(values[i].scalar<float>());
      waiting_[i] = values[3 + i].scalar<int32_t>();
      dropped_[i] = values[5].flat<int64_t>()[i];
    }
    global_step_ = values[2].scalar<int64_t>();
    return absl::OkStatus();
  }

  // Nobody hands out tokens, nor restores, after the chief has ended.
  bool MayFail() const override { return !over_; }
  // An update needs all workers, also one that had seen the last step before a parameter server was lost with it.
  bool ComesBack() const override { return !over_; }

  void Check() override {
    EXPECT_GE(global_step_, options_.steps);
    CheckDisk();
    EXPECT_GE(newest_usable_, global_step_ - 2 * options_.save_every_steps);
    // Steps and values since a checkpoint are lost with a ps, and with it what was in its accumulators.
    if (ps_deaths_ > 0) return;
    // The update of a chief that is killed may be applied in parts, or its gradients lost; so may the one that is under
    // way when a chief ends, where an update does not need its gradient.
    const int64_t killed = chiefs_ - 1;
    const bool ends_in_step = sync_.aggregate == options_.workers && sync_.num_tokens == 0;
    for (int i = 0; i < 2; ++i) {
      EXPECT_LE(std::abs(values_[i] + global_step_), killed + (ends_in_step ? 0 : 1)) << values_[i];
      const int64_t given = sync_.aggregate * -values_[i] + waiting_[i] + dropped_[i];
      EXPECT_LE(given, acknowledged_ + unknown_);
      // An update takes all gradients that are there, which may be more than it needs; but one worker that gets a token
      // for each gives one at a time.
      if (options_.workers == 1 && sync_.num_tokens == 0) {
        EXPECT_GE(given + killed, acknowledged_);
      }
    }
  }

  const SyncStormOptions sync_;
  const SyncReplicasOptions replicas_;
  int chiefs_ = 0;
  bool over_ = false;  // the chief has seen the last step
  int64_t values_[2] = {}, waiting_[2] = {}, dropped_[2] = {};
  int64_t global_step_ = 0;
};

SyncStormOptions SyncOptionsOf(uint64_t seed) {
  const int workers = static_cast<int>(1 + seed % 3);
  return {.storm = {.ps = static_cast<int>(1 + seed / 3 % 2), .workers = workers},
          .aggregate = 1 + static_cast<int>(seed / 6 % workers),
          .num_tokens = seed / 18 % 2 == 0 ? 0 : -1};
}

class SyncStorm : public SimClusterTest {};

TEST_P(SyncStorm, EachGradientCountsOnceWhileWorkersAndConnectionsFail) {
  ForSeeds(60, [](uint64_t seed) { SyncStormRun(seed, SyncOptionsOf(seed)).Run(); });
}

TEST_P(SyncStorm, TrainingGoesOnFromACheckpointWhenAPsDiesOrTheDiskFails) {
  ForSeeds(60, [](uint64_t seed) {
    SyncStormOptions options = SyncOptionsOf(seed);
    options.storm.ps_may_die = options.storm.disk_may_fail = true;
    SyncStormRun(seed, options).Run();
  });
}

INSTANTIATE_TEST_SUITE_P(Tensors, SyncStorm, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
