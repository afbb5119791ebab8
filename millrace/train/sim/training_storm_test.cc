// Trainings while tasks, programs, connections, clocks and the disk fail, as a seed decides.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/sim/sim_cluster_testing.h"
#include "millrace/cluster/sim/sim_training_testing.h"
#include "millrace/train/checkpoint/checkpoint_directory.h"
#include "millrace/train/checkpoint/saver.h"
#include "millrace/train/hooks/checkpoint_saver_hook.h"
#include "millrace/train/sim/sim_disk_testing.h"
#include "millrace/train/sim/sim_program_testing.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

constexpr int64_t kSaveEverySteps = 10;

struct StormOptions {
  int ps = 1;
  int workers = 2;
  int steps = 30;  // of each worker
  bool ps_may_die = false;
  bool disk_may_fail = false;
  bool power_may_fail = false;
};

class TrainingStormRun {
 public:
  TrainingStormRun(uint64_t seed, const StormOptions& options)
      : options_(options),
        disk_(seed),
        cluster_(seed, {.ps = options.ps, .workers = options.workers, .files = [this](const std::string& task) {
                          return disk_.Of(task);
                        }}) {
    network().SetOptions({.delayed = 0.05, .max_extra_delay = absl::Milliseconds(200)});
    workers_.resize(options_.workers);
    for (int i = 0; i < options_.workers; ++i) StartProgram(i);
  }

  ~TrainingStormRun() {
    closing_ = true;
    for (const auto& program : programs_) program->Kill();
    network().RunUntil([this] { return AllFinished(); });
  }

  void Run() {
    for (int i = 0; i < 6; ++i) ScheduleFault(absl::Milliseconds(cluster_.Random(20000)));
    const bool ended = network().RunUntil([this] { return AllFinished() && network_is_whole(); }, absl::Hours(1));
    PrintLog(&cluster_);
    ASSERT_TRUE(ended) << "a training does not end:\n" << absl::StrJoin(cluster_.Leftovers(), "\n");
    Check();
  }

 private:
  net::SimNetwork& network() { return cluster_.network(); }
  bool network_is_whole() const { return faults_ == mended_; }

  // One program of each worker is the current one; those that ended before it stay until the end.
  void StartProgram(int worker) {
    programs_.push_back(std::make_unique<SimProgram>(
        &network(), absl::StrCat("program", worker, ".", programs_.size()),
        [this, worker](SimProgram& program) { worker == 0 ? RunChief(program) : RunWorker(program, worker); }));
    workers_[worker].program = programs_.back().get();
  }
  // Lets the programs run as far as they can. Those that failed are started again after a second, as by a launcher.
  bool AllFinished() {
    bool all = true;
    for (size_t i = 0; i < programs_.size(); ++i) all &= programs_[i]->Proceed();
    for (int i = 0; i < options_.workers && !closing_; ++i) {
      WorkerState& worker = workers_[i];
      all &= worker.succeeded;
      if (worker.succeeded || worker.program == nullptr || !worker.program->finished()) continue;
      worker.program = nullptr;
      network().timers()->Schedule(absl::Seconds(1), [this, i] {
        if (!closing_) StartProgram(i);
      });
    }
    return all;
  }

  SessionOptions Target(int worker) { return {.target = absl::StrCat("sim://worker", worker, ":2222")}; }

  void RunChief(SimProgram& program) {
    CountingModel model = CountingModel::OfWorker(0, options_.ps);
    auto scaffold = std::make_shared<Scaffold>();
    scaffold->saver = std::make_shared<Saver>(
        model.scope, SaverOptions{.sharded = options_.ps > 1, .files = disk_.Of(program.host())});
    MonitoredSessionOptions options{.wait = program.waits()};
    options.hooks = {std::make_shared<CheckpointSaverHook>(
        CheckpointSaverHookOptions{.checkpoint_dir = disk_.path(),
                                   .every_steps = kSaveEverySteps,
                                   .saver = scaffold->saver.get(),
                                   .listeners = {std::make_shared<SaveListener>(this)},
                                   .background = false,
                                   .clock = network().clock(program.host())})};
    // A chief that is started again knows that the values are its own, even before the first checkpoint.
    const std::optional<bool> keep_values = std::exchange(chief_began_, true) ? std::optional(true) : std::nullopt;
    Train(program, model,
          MonitoredSession::Create(model.scope,
                                   ChiefSessionCreator({.session = Target(0),
                                                        .scaffold = scaffold,
                                                        .checkpoint_dir = disk_.path(),
                                                        .keep_values = keep_values}),
                                   std::move(options)),
          0);
  }
  void RunWorker(SimProgram& program, int worker) {
    CountingModel model = CountingModel::OfWorker(worker, options_.ps);
    Train(program, model,
          MonitoredSession::Create(model.scope, WorkerSessionCreator({.session = Target(worker)}),
                                   {.wait = program.waits()}),
          worker);
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
    workers_[worker].succeeded = status.ok();
    if (program.killed() || status.ok()) return;
    // A full disk ends a training.
    EXPECT_TRUE(disk_was_full_ && absl::IsResourceExhausted(status)) << "worker " << worker << ": " << status;
  }

  bool AllDone() {
    return std::all_of(workers_.begin(), workers_.end(),
                       [this](const WorkerState& worker) { return worker.done >= options_.steps; });
  }

  // The chief's checkpoints, as they are acknowledged.
  class SaveListener : public CheckpointSaverListener {
   public:
    explicit SaveListener(TrainingStormRun* storm) : storm_(storm) {}
    StatusOr<bool> AfterSave(ClientSession*, int64_t step, const std::string&) override {
      storm_->saved_ = step;
      return false;
    }

   private:
    TrainingStormRun* const storm_;
  };

  // A fault that passes by itself.
  void ScheduleFault(absl::Duration when) {
    const int task_number = cluster_.Random(static_cast<int>(cluster_.tasks().size()));
    const int other_number = cluster_.Random(static_cast<int>(cluster_.tasks().size()));
    const std::string task = cluster_.tasks()[task_number], other = cluster_.tasks()[other_number];
    const int kind = cluster_.Random(9), n = cluster_.Random(30);
    const absl::Duration pause = absl::Milliseconds(cluster_.Random(10000));
    ++faults_;
    network().timers()->Schedule(when, [=, this] { Fault(kind, task, other, n); });
    network().timers()->Schedule(when + pause + absl::Seconds(1), [this] {
      Mend();
      ++mended_;
    });
  }
  void Fault(int kind, const std::string& task, const std::string& other, int n) {
    if (!cluster_.IsAlive(task) || !cluster_.IsAlive(other)) return;
    const bool is_ps = SimCluster::Id(task).job == "ps";
    switch (kind) {
      case 0:
        if (!is_ps || options_.ps_may_die) Kill(task);
        return;
      case 1:
        return cluster_.Hang(task);
      case 2:
        if (task != other) cluster_.Cut(task, other);
        return;
      case 3:
        if (task != other) cluster_.CutOneWay(task, other);
        return;
      case 4:
        return cluster_.SetClock(task, 0.5 + n / 20.0, absl::Seconds(n - 10));
      case 5:
        if (!options_.disk_may_fail) return;
        if (n % 2 == 0) return cluster_.SetMaxFileDelay(absl::Seconds(n));
        disk_was_full_ = true;
        return disk_.SetFull(true);
      case 6:
        // It dies while it writes its part of a checkpoint.
        if (options_.disk_may_fail && options_.ps_may_die && is_ps) {
          disk_.BreakAt(cluster_.HostOf(task), n, [this, task] {
            network().timers()->Schedule(absl::ZeroDuration(), [this, task] { Kill(task); });
          });
        }
        return;
      case 7:
        if (options_.power_may_fail) LosePower();
        return;
      default:
        if (!is_ps) KillProgram(SimCluster::Id(task).index);
    }
  }
  void KillProgram(int worker) {
    SimProgram* const program = workers_[worker].program;
    if (program == nullptr) return;
    disk_.BreakAt(program->host(), 0);
    program->Kill();
  }
  void Kill(const std::string& task) {
    if (!cluster_.IsAlive(task)) return;
    if (SimCluster::Id(task).job == "ps") ++ps_deaths_;
    disk_.BreakAt(cluster_.HostOf(task), 0);
    cluster_.Kill(task);
  }
  // All machines stop at once.
  void LosePower() {
    for (int i = 0; i < options_.workers; ++i) KillProgram(i);
    for (const std::string& task : cluster_.tasks()) Kill(task);
    disk_.LosePower();
    CheckDisk();
  }
  void Mend() {
    disk_.SetFull(false);
    cluster_.SetMaxFileDelay(absl::ZeroDuration());
    for (const std::string& task : cluster_.tasks()) {
      if (!cluster_.IsAlive(task)) cluster_.Start(task);
      disk_.Repair(cluster_.HostOf(task));
      cluster_.Resume(task);
      cluster_.SetClock(task, 1, absl::ZeroDuration());
      for (const std::string& other : cluster_.tasks()) {
        if (other < task) cluster_.Heal(task, other);
      }
    }
  }

  void Check() {
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
    EXPECT_GE(saved_.value_or(0), global_step_ - 2 * kSaveEverySteps);
  }
  // No checkpoint that was acknowledged is lost.
  void CheckDisk() {
    const StatusOr<std::vector<std::string>> usable = UsableCheckpoints(disk_.path());
    ASSERT_EQ(usable.status(), absl::OkStatus());
    if (!saved_) return;
    ASSERT_FALSE(usable->empty());
    EXPECT_GE(*StepOfCheckpoint(usable->front()), *saved_);
  }

  const StormOptions options_;
  SimDisk disk_;
  SimCluster cluster_;
  std::vector<std::unique_ptr<SimProgram>> programs_;
  struct WorkerState {
    SimProgram* program = nullptr;
    int done = 0;  // acknowledged runs of all its programs
    bool succeeded = false;
  };
  std::vector<WorkerState> workers_;
  bool closing_ = false;
  int faults_ = 0, mended_ = 0;
  int64_t acknowledged_ = 0;
  int64_t unknown_ = 0;           // runs that a program saw fail or was killed in
  std::optional<int64_t> saved_;  // the step of the newest checkpoint that was acknowledged
  bool chief_began_ = false;
  int ps_deaths_ = 0;
  bool disk_was_full_ = false;
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

INSTANTIATE_TEST_SUITE_P(Tensors, TrainingStorm, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
