// Trainings on a simulated cluster while tasks, programs, connections, clocks and the disk fail, as a seed decides. For
// tests only.
#pragma once

#include <algorithm>
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

struct StormOptions {
  int ps = 1;
  int workers = 2;
  int steps = 30;  // of each worker; or of the training, where all make the same steps
  int64_t save_every_steps = 10;
  bool ps_may_die = false;
  bool disk_may_fail = false;
  bool power_may_fail = false;
  bool disk_lies = false;  // it says that what it has is safe
  // Of each message; 0: no limit.
  double bytes_per_second = 0;
};

// One program for each worker, started again when it fails. Worker 0's is the chief. A subclass says what they do and
// what must be true at the end.
class StormRun {
 public:
  StormRun(uint64_t seed, const StormOptions& options)
      : options_(options),
        disk_(seed),
        cluster_(seed, {.ps = options.ps, .workers = options.workers, .files = [this](const std::string& task) {
                          return disk_.Of(task);
                        }}) {
    network().SetOptions(
        {.delayed = 0.05, .max_extra_delay = absl::Milliseconds(200), .bytes_per_second = options.bytes_per_second});
    disk_.SetLies(options.disk_lies);
    workers_.resize(options_.workers);
    for (int i = 0; i < options_.workers; ++i) StartProgram(i);
  }
  virtual ~StormRun() { MR_CHECK(closing_); }

  void Run() {
    for (int i = 0; i < 6; ++i) ScheduleFault(absl::Milliseconds(cluster_.Random(20000)));
    const bool ended = network().RunUntil([this] { return AllFinished() && faults_ == mended_; }, absl::Hours(1));
    PrintLog(&cluster_);
    ASSERT_TRUE(ended) << "a training does not end:\n" << absl::StrJoin(cluster_.Leftovers(), "\n");
    Check();
  }

 protected:
  // One program of each worker is the current one; those that ended before it stay until the end.
  struct WorkerState {
    SimProgram* program = nullptr;
    int done = 0;  // acknowledged runs of all its programs
    bool succeeded = false;
    int brought_back = 0;  // the number of deaths of parameter servers when it was last started again after its end
  };

  // The program of a worker, from its start to its end. Sets `succeeded`.
  virtual void RunProgram(SimProgram& program, int worker) = 0;
  virtual void Check() = 0;
  // Whether a fault may come now.
  virtual bool MayFail() const { return true; }
  // Whether a worker that has ended takes part in what a lost parameter server has undone.
  virtual bool ComesBack() const { return false; }
  // Called by destructors: ends the programs.
  void Close() {
    closing_ = true;
    for (const auto& program : programs_) program->Kill();
    network().RunUntil([this] { return AllFinished(); });
  }

  net::SimNetwork& network() { return cluster_.network(); }
  SessionOptions Target(int worker) { return {.target = absl::StrCat("sim://worker", worker, ":2222")}; }

  // Lets the programs run as far as they can. Those that failed are started again after a second, as by a launcher.
  bool AllFinished() {
    bool all = true;
    for (size_t i = 0; i < programs_.size(); ++i) all &= programs_[i]->Proceed();
    for (int i = 0; i < options_.workers && !closing_; ++i) {
      WorkerState& worker = workers_[i];
      if (worker.succeeded && ComesBack() && worker.brought_back < ps_deaths_) {
        worker.brought_back = ps_deaths_;
        worker.succeeded = false;
      }
      all &= worker.succeeded;
      if (worker.succeeded || worker.program == nullptr || !worker.program->finished()) continue;
      worker.program = nullptr;
      network().timers()->Schedule(absl::Seconds(1), [this, i] {
        if (!closing_) StartProgram(i);
      });
    }
    return all;
  }

  // A MonitoredSession as the chief makes it, which saves checkpoints.
  StatusOr<std::unique_ptr<MonitoredSession>> ChiefSession(SimProgram& program, const Scope& scope, Hooks hooks = {}) {
    auto scaffold = std::make_shared<Scaffold>();
    scaffold->saver =
        std::make_shared<Saver>(scope, SaverOptions{.sharded = options_.ps > 1, .files = disk_.Of(program.host())});
    MonitoredSessionOptions options{.hooks = std::move(hooks), .wait = program.waits()};
    options.hooks.push_back(std::make_shared<CheckpointSaverHook>(
        CheckpointSaverHookOptions{.checkpoint_dir = disk_.path(),
                                   .every_steps = options_.save_every_steps,
                                   .saver = scaffold->saver.get(),
                                   .listeners = {std::make_shared<SaveListener>(this)},
                                   .background = false,
                                   .clock = network().clock(program.host())}));
    // A chief that is started again knows that the values are its own, even before the first checkpoint.
    const std::optional<bool> keep_values = std::exchange(chief_began_, true) ? std::optional(true) : std::nullopt;
    return MonitoredSession::Create(
        scope,
        ChiefSessionCreator(
            {.session = Target(0), .scaffold = scaffold, .checkpoint_dir = disk_.path(), .keep_values = keep_values}),
        std::move(options));
  }
  StatusOr<std::unique_ptr<MonitoredSession>> WorkerSession(SimProgram& program, const Scope& scope, int worker,
                                                            Hooks hooks = {}) {
    return MonitoredSession::Create(scope, WorkerSessionCreator({.session = Target(worker)}),
                                    {.hooks = std::move(hooks), .wait = program.waits()});
  }

  // A program ends with an error only if it was killed, the disk was full, or all checkpoints were lost by a disk that
  // lied: then somebody removes them.
  void NoteEnd(const SimProgram& program, int worker, const Status& status) {
    workers_[worker].succeeded = status.ok();
    if (program.killed() || status.ok()) return;
    if (options_.disk_lies && power_losses_ > 0 && absl::IsDataLoss(status)) {
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(disk_.path()));
      disk_.RemoveAll();
      return;
    }
    EXPECT_TRUE(disk_was_full_ && absl::IsResourceExhausted(status)) << "worker " << worker << ": " << status;
  }

  // No checkpoint that was acknowledged is lost, unless the disk lied. Sets newest_usable_.
  void CheckDisk() {
    const StatusOr<std::vector<std::string>> usable = UsableCheckpoints(disk_.path());
    if (options_.disk_lies && absl::IsDataLoss(usable.status())) return;
    ASSERT_EQ(usable.status(), absl::OkStatus());
    newest_usable_ = usable->empty() ? 0 : *StepOfCheckpoint(usable->front());
    if (!saved_) return;
    ASSERT_FALSE(usable->empty());
    EXPECT_GE(*StepOfCheckpoint(usable->front()), *saved_);
  }

  const StormOptions options_;
  SimDisk disk_;
  SimCluster cluster_;
  std::vector<WorkerState> workers_;
  int64_t acknowledged_ = 0;
  int64_t unknown_ = 0;           // runs that a program saw fail or was killed in
  std::optional<int64_t> saved_;  // the step of the newest checkpoint that was acknowledged
  int64_t newest_usable_ = 0;     // the step of the newest checkpoint that can be restored
  int ps_deaths_ = 0;
  int power_losses_ = 0;

 private:
  void StartProgram(int worker) {
    programs_.push_back(
        std::make_unique<SimProgram>(&network(), absl::StrCat("program", worker, ".", programs_.size()),
                                     [this, worker](SimProgram& program) { RunProgram(program, worker); }));
    workers_[worker].program = programs_.back().get();
  }

  // The chief's checkpoints, as they are acknowledged.
  class SaveListener : public CheckpointSaverListener {
   public:
    explicit SaveListener(StormRun* storm) : storm_(storm) {}
    StatusOr<bool> AfterSave(ClientSession*, int64_t step, const std::string&) override {
      storm_->saved_ = step;
      return false;
    }

   private:
    StormRun* const storm_;
  };

  // A fault that passes by itself.
  void ScheduleFault(absl::Duration when) {
    const int task_number = cluster_.Random(static_cast<int>(cluster_.tasks().size()));
    const int other_number = cluster_.Random(static_cast<int>(cluster_.tasks().size()));
    const std::string task = cluster_.tasks()[task_number], other = cluster_.tasks()[other_number];
    const int kind = cluster_.Random(9), n = cluster_.Random(30);
    const absl::Duration pause = absl::Milliseconds(cluster_.Random(10000));
    ++faults_;
    network().timers()->Schedule(when, [=, this] {
      if (MayFail()) Fault(kind, task, other, n);
    });
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
            network().timers()->Schedule(absl::ZeroDuration(), [this, task] {
              if (MayFail()) Kill(task);
            });
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
    ++power_losses_;
    for (int i = 0; i < options_.workers; ++i) KillProgram(i);
    for (const std::string& task : cluster_.tasks()) Kill(task);
    disk_.LosePower();
    if (options_.disk_lies) saved_.reset();
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

  std::vector<std::unique_ptr<SimProgram>> programs_;
  bool closing_ = false;
  int faults_ = 0, mended_ = 0;
  bool chief_began_ = false;
  bool disk_was_full_ = false;
};

}  // namespace millrace
