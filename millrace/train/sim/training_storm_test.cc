// Asynchronous trainings while everything fails.
#include "millrace/train/sim/storm_run_testing.h"

namespace millrace {
namespace {

class TrainingStormRun : public StormRun {
 public:
  using StormRun::StormRun;
  ~TrainingStormRun() override { Close(); }

 private:
  void RunProgram(SimProgram& program, int worker) override {
    CountingModel model = CountingModel::OfWorker(worker, options_.ps);
    Train(program, model,
          worker == 0 ? ChiefSession(program, model.scope) : WorkerSession(program, model.scope, worker), worker);
  }

  void Train(SimProgram& program, CountingModel& model, StatusOr<std::unique_ptr<MonitoredSession>> made, int worker) {
    Status status = made.status();
    while (status.ok() && workers_[worker].done < options_.steps) {
      status = (*made)->Run(model.train);
      if (status.ok()) {
        ++acknowledged_;
        ++workers_[worker].done;
      } else {
        ++unknown_;
      }
    }
    // Only the chief can restore, so it stays until all are done.
    while (worker == 0 && status.ok() && !AllDone()) {
      program.Pause(absl::Seconds(1));
      status = (*made)->Run({model.w, model.global_step}).status();
    }
    if (worker == 0 && status.ok()) {
      const StatusOr<Tensors> values = (*made)->Run({model.w, model.global_step});
      status = values.status();
      if (status.ok()) {
        w_ = static_cast<int64_t>((*values)[0].scalar<float>());
        global_step_ = (*values)[1].scalar<int64_t>();
      }
    }
    NoteEnd(program, worker, status);
  }

  bool AllDone() {
    return std::all_of(workers_.begin(), workers_.end(),
                       [this](const WorkerState& worker) { return worker.done >= options_.steps; });
  }

  void Check() override {
    EXPECT_EQ(acknowledged_, options_.workers * options_.steps);
    // What a program that was killed or failed had under way may have been applied or not; everything else was, once.
    // With a ps its values are lost, back to a checkpoint, and what it knew of the run that each worker had under way:
    // a checkpoint may have the run already when it is repeated.
    const int64_t forgotten = int64_t{ps_deaths_} * options_.workers;
    for (const int64_t value : {w_, global_step_}) {
      EXPECT_LE(value, acknowledged_ + unknown_ + forgotten);
      if (ps_deaths_ == 0) {
        EXPECT_GE(value, acknowledged_);
      }
    }
    CheckDisk();
    // The power may be lost after the end, and with it what a disk only claimed to have.
    if (options_.disk_lies) return;
    EXPECT_GE(newest_usable_, global_step_ - 2 * options_.save_every_steps);
  }

  int64_t w_ = 0, global_step_ = 0;
};

class TrainingStorm : public SimClusterTest {};

TEST_P(TrainingStorm, EveryRunIsAppliedOnceWhileWorkersAndConnectionsFail) {
  ForSeeds(100, [](uint64_t seed) {
    TrainingStormRun(seed, {.ps = static_cast<int>(1 + seed % 2), .workers = static_cast<int>(1 + seed % 3)}).Run();
  });
}

TEST_P(TrainingStorm, TrainingGoesOnFromACheckpointWhenAPsDiesOrTheDiskFails) {
  ForSeeds(100, [](uint64_t seed) {
    TrainingStormRun(seed, {.ps = static_cast<int>(1 + seed % 2),
                            .workers = static_cast<int>(1 + seed % 3),
                            .ps_may_die = true,
                            .disk_may_fail = true})
        .Run();
  });
}

TEST_P(TrainingStorm, ACheckpointThatWasAcknowledgedOutlivesALossOfPower) {
  ForSeeds(100, [](uint64_t seed) {
    TrainingStormRun(seed, {.ps = static_cast<int>(1 + seed % 2), .ps_may_die = true, .power_may_fail = true}).Run();
  });
}

TEST_P(TrainingStorm, ADiskThatLiesCostsCheckpointsAndNotTheTraining) {
  ForSeeds(50, [](uint64_t seed) {
    TrainingStormRun(
        seed, {.ps = static_cast<int>(1 + seed % 2), .ps_may_die = true, .power_may_fail = true, .disk_lies = true})
        .Run();
  });
}

// A message takes up to seconds, as long as others need for the whole training.
TEST_P(TrainingStorm, EveryRunIsAppliedOnceOnASlowNetwork) {
  ForSeeds(50, [](uint64_t seed) {
    TrainingStormRun(seed, {.ps = static_cast<int>(1 + seed % 2),
                            .workers = static_cast<int>(1 + seed % 3),
                            .bytes_per_second = 5000.0 * static_cast<double>(1 + seed % 10)})
        .Run();
  });
}

INSTANTIATE_TEST_SUITE_P(Tensors, TrainingStorm, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
