#include "millrace/launch/supervision.h"

#include <csignal>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Kind = Action::Kind;

constexpr ExitStatus kKilled = {.signal = SIGKILL};
constexpr ExitStatus kOne = {.code = 1};
constexpr ExitStatus kDone = {};

JobSpec SpecOf(int ps, int workers, RestartPolicy worker_restart = {}) {
  JobSpec job;
  job.program = {"program"};
  if (ps > 0) job.groups.push_back({.name = "ps", .count = ps, .serves = true});
  job.groups.push_back({.name = "worker", .count = workers, .restart = worker_restart});
  return job;
}

// A job on a virtual clock, with obedient keepers.
class Stage {
 public:
  explicit Stage(const JobSpec& job) : supervision(job, &clock) {}

  // Until every program runs.
  void Start() {
    supervision.Begin();
    const int count = static_cast<int>(supervision.tasks().size());
    for (int i = 0; i < count; ++i) supervision.OnKeeperReady(i);
    for (int i = 0; i < count; ++i) supervision.OnStarted(i, 100 + i);
    Take();
  }
  // The program and all its descendants end.
  void Exit(int task, ExitStatus exit, absl::string_view last_words = "") {
    supervision.OnExited(task, exit, last_words);
    supervision.OnGone(task);
  }
  std::vector<Action> Take() { return supervision.Take(); }
  // Time passes; timers run when they are due.
  void Pass(absl::Duration time) {
    const absl::Time end = clock.Now() + time;
    while (supervision.next_timer() <= end) {
      clock.Advance(std::max(absl::ZeroDuration(), supervision.next_timer() - clock.Now()));
      supervision.OnTimer();
    }
    clock.Advance(end - clock.Now());
  }
  RunState state(int task) const { return supervision.tasks()[task].state; }
  // The tasks of the pending actions of one kind.
  std::vector<int> TasksOf(Kind kind, const std::vector<Action>& actions) const {
    std::vector<int> tasks;
    for (const Action& action : actions) {
      if (action.kind == kind) tasks.push_back(action.task);
    }
    return tasks;
  }

  VirtualClock clock;
  Supervision supervision;
};

Action Finish(const std::vector<Action>& actions) {
  EXPECT_FALSE(actions.empty());
  if (actions.empty() || actions.back().kind != Kind::kFinish) {
    ADD_FAILURE() << "the job is not finished";
    return {Kind::kTell};
  }
  return actions.back();
}

TEST(Supervision, ProgramsStartWhenAllKeepersAreReady) {
  Stage stage(SpecOf(1, 2));
  stage.supervision.Begin();
  EXPECT_THAT(stage.TasksOf(Kind::kStartKeeper, stage.Take()), ElementsAre(0, 1, 2));
  stage.supervision.OnKeeperReady(2);
  stage.supervision.OnKeeperReady(0);
  EXPECT_THAT(stage.Take(), IsEmpty());
  EXPECT_EQ(stage.supervision.job_state(), RunState::kPending);
  stage.supervision.OnKeeperReady(1);
  EXPECT_THAT(stage.TasksOf(Kind::kStartProgram, stage.Take()), ElementsAre(0, 1, 2));
  EXPECT_EQ(stage.supervision.job_state(), RunState::kStarting);
  for (int i = 0; i < 3; ++i) stage.supervision.OnStarted(i, 100 + i);
  EXPECT_EQ(stage.supervision.job_state(), RunState::kRunning);
  EXPECT_EQ(stage.supervision.next_timer(), absl::InfiniteFuture());
}

TEST(Supervision, TheJobIsDoneWhenItsWorkersAreAndThenThePsIsEnded) {
  Stage stage(SpecOf(1, 2));
  stage.Start();
  stage.Exit(1, kDone);
  EXPECT_THAT(stage.Take(), IsEmpty());
  stage.Exit(2, kDone);
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kSignal, 0, SIGTERM}));
  stage.Exit(0, {.signal = SIGTERM});
  EXPECT_EQ(Finish(stage.Take()), (Action{Kind::kFinish, -1, 0, ""}));
  EXPECT_EQ(stage.state(0), RunState::kStopped);
  EXPECT_EQ(stage.state(1), RunState::kSucceeded);
  EXPECT_EQ(stage.supervision.job_state(), RunState::kSucceeded);
}

TEST(Supervision, TheJobSucceedsThoughAPsDiesWhenItsWorkersAreDone) {
  Stage stage(SpecOf(1, 1));
  stage.Start();
  // As a launcher that was suspended hears of it.
  stage.Exit(0, kKilled);
  stage.Exit(1, kDone);
  EXPECT_EQ(Finish(stage.Take()), (Action{Kind::kFinish, -1, 0, ""}));
  EXPECT_EQ(stage.supervision.job_state(), RunState::kSucceeded);
}

TEST(Supervision, APsThatIgnoresItsEndIsKilledAfterTheGrace) {
  Stage stage(SpecOf(1, 1));
  stage.Start();
  stage.Exit(1, kDone);
  stage.Take();
  stage.Pass(absl::Seconds(4.9));
  EXPECT_THAT(stage.Take(), IsEmpty());
  stage.Pass(absl::Seconds(0.2));
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kKill, 0}));
  stage.Exit(0, kKilled);
  EXPECT_EQ(Finish(stage.Take()).number, 0);
}

TEST(Supervision, AJobOfServersAloneIsDoneWhenTheyEnd) {
  Stage stage(SpecOf(2, 0));
  stage.Start();
  stage.Exit(0, kDone);
  EXPECT_THAT(stage.Take(), IsEmpty());
  stage.Exit(1, kDone);
  EXPECT_EQ(Finish(stage.Take()).number, 0);
}

TEST(Supervision, AKilledWorkerIsNamedWithItsStepAndTheOthersAreStopped) {
  Stage stage(SpecOf(1, 2));
  stage.Start();
  stage.supervision.OnStep(2, 812);
  stage.Exit(2, kKilled);
  EXPECT_THAT(stage.Take(), IsEmpty());  // others may show that they were first
  stage.Pass(absl::Seconds(1));
  EXPECT_THAT(stage.Take(), UnorderedElementsAre(Action{Kind::kSignal, 0, SIGTERM}, Action{Kind::kSignal, 1, SIGTERM}));
  stage.Exit(0, kDone);
  stage.Exit(1, {.signal = SIGTERM});
  const Action finish = Finish(stage.Take());
  EXPECT_EQ(finish.number, 137);
  EXPECT_EQ(finish.text, "worker/1 was killed by SIGKILL at step 812; the others stopped because of it");
  EXPECT_EQ(stage.state(2), RunState::kFailed);
  EXPECT_EQ(stage.state(1), RunState::kStopped);
  EXPECT_EQ(stage.supervision.job_state(), RunState::kFailed);
}

TEST(Supervision, TheOneThatWasKilledIsBlamedThoughNewsOfAnotherCameFirst) {
  Stage stage(SpecOf(1, 2));
  stage.Start();
  stage.Exit(1, kOne, "ps/0 cannot be reached");
  stage.Pass(absl::Milliseconds(50));
  stage.Exit(0, kKilled);
  stage.Pass(absl::Seconds(1));
  stage.Take();
  stage.Exit(2, kOne);
  const Action finish = Finish(stage.Take());
  EXPECT_EQ(finish.number, 137);
  EXPECT_EQ(finish.text, "ps/0 was killed by SIGKILL; the others stopped because of it");
}

TEST(Supervision, AKilledPsIsNamedWithTheStepOfItsWorkers) {
  Stage stage(SpecOf(1, 2));
  stage.Start();
  stage.supervision.OnStep(1, 40);
  stage.supervision.OnStep(2, 41);
  stage.Exit(0, kKilled);
  stage.Pass(absl::Seconds(1));
  EXPECT_EQ(stage.supervision.cause(), "ps/0 was killed by SIGKILL at step 41; the others stopped because of it");
}

TEST(Supervision, OfTwoThatExitTheFirstIsBlamedWithItsLastWords) {
  Stage stage(SpecOf(0, 2));
  stage.Start();
  stage.Exit(1, {.code = 3}, "ValueError: no data");
  stage.Exit(0, kOne, "worker/1 cannot be reached");
  stage.Pass(absl::Seconds(1));
  const Action finish = Finish(stage.Take());
  EXPECT_EQ(finish.number, 3);
  EXPECT_EQ(finish.text, "worker/1 exited with code 3 (ValueError: no data); the others stopped because of it");
}

TEST(Supervision, ASingleTaskHasNoOthersToStop) {
  Stage stage(SpecOf(0, 1));
  stage.Start();
  stage.Exit(0, {.code = 7});
  stage.Pass(absl::Seconds(1));
  EXPECT_EQ(Finish(stage.Take()).text, "worker/0 exited with code 7");
}

TEST(Supervision, ATaskThatIsStoppedWhenAnotherGivesUpIsNamed) {
  Stage stage(SpecOf(1, 1));
  stage.Start();
  stage.supervision.OnSuspended(0, SIGSTOP);
  stage.Pass(absl::Seconds(5));
  stage.Exit(1, kOne, "ps/0 has not answered for 5s");
  stage.Pass(absl::Seconds(1));
  stage.Take();
  stage.Exit(0, kKilled);
  const Action finish = Finish(stage.Take());
  EXPECT_EQ(finish.number, 1);
  EXPECT_THAT(finish.text, HasSubstr("ps/0 was suspended by SIGSTOP"));
  EXPECT_THAT(finish.text, HasSubstr("worker/0 exited with code 1"));
}

TEST(Supervision, ATaskThatStaysSuspendedIsKilledAndCountsAsFailed) {
  Stage stage(SpecOf(0, 2));
  stage.Start();
  stage.supervision.OnStep(1, 5);
  stage.supervision.OnSuspended(1, SIGSTOP);
  stage.Pass(absl::Seconds(6.9));
  EXPECT_THAT(stage.Take(), IsEmpty());
  stage.Pass(absl::Seconds(0.2));
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kKill, 1}));
  stage.Exit(1, kKilled);
  stage.Pass(absl::Seconds(1));
  stage.Take();
  stage.Exit(0, {.signal = SIGTERM});
  EXPECT_EQ(
      Finish(stage.Take()).text,
      "worker/1 was suspended by SIGSTOP at step 5 for 7.1 s and killed for it; the others stopped because of it");
}

TEST(Supervision, ATaskThatGoesOnInTimeIsLeftAlone) {
  Stage stage(SpecOf(0, 1));
  stage.Start();
  stage.supervision.OnSuspended(0, SIGTSTP);
  stage.Pass(absl::Seconds(3));
  stage.supervision.OnSuspended(0, 0);
  stage.Pass(absl::Seconds(30));
  EXPECT_THAT(stage.Take(), IsEmpty());
}

TEST(Supervision, AFailedTaskIsRestartedAfterPausesThatDouble) {
  Stage stage(SpecOf(0, 2, {.limit = 2}));
  stage.Start();
  stage.Exit(0, kKilled);
  EXPECT_EQ(stage.state(0), RunState::kRestarting);
  EXPECT_EQ(stage.supervision.job_state(), RunState::kRestarting);
  std::vector<Action> told = stage.Take();
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0].text, "worker/0 was killed by SIGKILL; it is restarted in 1 s (restart 1 of 2)");
  stage.Pass(absl::Seconds(0.9));
  EXPECT_THAT(stage.Take(), IsEmpty());
  stage.Pass(absl::Seconds(0.2));
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kStartProgram, 0}));
  stage.supervision.OnStarted(0, 200);
  EXPECT_EQ(stage.supervision.job_state(), RunState::kRunning);
  stage.Exit(0, kOne);
  stage.Take();
  stage.Pass(absl::Seconds(1.9));
  EXPECT_THAT(stage.Take(), IsEmpty());
  stage.Pass(absl::Seconds(0.2));
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kStartProgram, 0}));
  stage.supervision.OnStarted(0, 300);
  stage.Exit(0, kOne);
  stage.Pass(absl::Seconds(1));
  EXPECT_EQ(stage.state(0), RunState::kFailed);
  stage.Take();
  stage.Exit(1, kDone);
  EXPECT_EQ(Finish(stage.Take()).text,
            "worker/0 exited with code 1, after 2 restarts; the others stopped because of it");
}

TEST(Supervision, ARestartWaitsUntilNothingIsLeftOfTheProgramBefore) {
  Stage stage(SpecOf(0, 1, {.limit = 1}));
  stage.Start();
  stage.supervision.OnExited(0, kOne, "");
  stage.Take();
  stage.Pass(absl::Seconds(10));
  EXPECT_THAT(stage.Take(), IsEmpty());
  stage.supervision.OnGone(0);
  stage.Pass(absl::ZeroDuration());
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kStartProgram, 0}));
}

TEST(Supervision, ATaskThatSucceedsIsNotRestarted) {
  Stage stage(SpecOf(0, 1, {.limit = 5}));
  stage.Start();
  stage.Exit(0, kDone);
  EXPECT_EQ(Finish(stage.Take()).number, 0);
}

TEST(Supervision, AProgramThatIsNotThereFailsTheJobWithoutRestarts) {
  Stage stage(SpecOf(0, 2, {.limit = 5}));
  stage.supervision.Begin();
  for (int i = 0; i < 2; ++i) stage.supervision.OnKeeperReady(i);
  for (int i = 0; i < 2; ++i) stage.supervision.OnNotStarted(i, "./program: No such file or directory", 127);
  stage.Pass(absl::Seconds(1));
  const Action finish = Finish(stage.Take());
  EXPECT_EQ(finish.number, 127);
  EXPECT_EQ(finish.text,
            "worker/0 could not be started: ./program: No such file or directory; the others stopped because of it");
}

TEST(Supervision, ALostTaskEndsTheJobAsLost) {
  Stage stage(SpecOf(0, 2));
  stage.Start();
  stage.supervision.OnStep(1, 9);
  stage.supervision.OnKeeperLost(1, "the connection to b ended");
  EXPECT_EQ(stage.state(1), RunState::kLost);
  stage.Pass(absl::Seconds(1));
  stage.Take();
  stage.Exit(0, {.signal = SIGTERM});
  const Action finish = Finish(stage.Take());
  EXPECT_EQ(finish.number, 1);
  EXPECT_EQ(finish.text, "worker/1 was lost at step 9: the connection to b ended; the others stopped because of it");
  EXPECT_EQ(stage.supervision.job_state(), RunState::kLost);
}

TEST(Supervision, ALostTaskThatMayBeRestartedGetsAnotherKeeper) {
  Stage stage(SpecOf(0, 1, {.limit = 2}));
  stage.Start();
  stage.supervision.OnKeeperLost(0, "gone");
  EXPECT_EQ(stage.state(0), RunState::kRestarting);
  stage.Take();
  stage.Pass(absl::Seconds(1.1));
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kStartKeeper, 0}));
  // The host is still away: that costs the second restart, and the third is not there.
  stage.supervision.OnKeeperLost(0, "refused");
  EXPECT_EQ(stage.state(0), RunState::kRestarting);
  stage.Take();
  stage.Pass(absl::Seconds(2.1));
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kStartKeeper, 0}));
  stage.supervision.OnKeeperReady(0);
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kStartProgram, 0}));
  stage.supervision.OnStarted(0, 7);
  stage.supervision.OnKeeperLost(0, "gone");
  EXPECT_EQ(stage.state(0), RunState::kLost);
}

TEST(Supervision, AHostThatCannotBeReachedEndsTheJobBeforeAnythingStarts) {
  Stage stage(SpecOf(0, 2, {.limit = 3}));
  stage.supervision.Begin();
  stage.supervision.OnKeeperReady(0);
  stage.supervision.OnKeeperLost(1, "b: Permission denied");
  stage.Pass(absl::Seconds(1));
  EXPECT_EQ(Finish(stage.Take()).text,
            "worker/1 could not be reached: b: Permission denied; the others stopped because of it");
}

TEST(Supervision, AnInterruptGoesFromAskingToKilling) {
  Stage stage(SpecOf(0, 1));
  stage.Start();
  stage.supervision.OnInterrupt(SIGINT);
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kSignal, 0, SIGINT}));
  stage.Pass(absl::Seconds(5));
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kSignal, 0, SIGTERM}));
  stage.Pass(absl::Seconds(5));
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kKill, 0}));
  stage.Exit(0, kKilled);
  const Action finish = Finish(stage.Take());
  EXPECT_EQ(finish.number, 130);
  EXPECT_THAT(finish.text, HasSubstr("interrupted by SIGINT"));
  EXPECT_EQ(stage.state(0), RunState::kStopped);
  EXPECT_EQ(stage.supervision.job_state(), RunState::kStopped);
}

TEST(Supervision, ASecondInterruptKillsAtOnce) {
  Stage stage(SpecOf(0, 1));
  stage.Start();
  stage.supervision.OnInterrupt(SIGTERM);
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kSignal, 0, SIGTERM}));
  stage.supervision.OnInterrupt(SIGINT);
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kKill, 0}));
  stage.Exit(0, kKilled);
  EXPECT_EQ(Finish(stage.Take()).number, 143);
}

TEST(Supervision, AnInterruptInAPauseEndsTheJob) {
  Stage stage(SpecOf(0, 1, {.limit = 1}));
  stage.Start();
  stage.Exit(0, kOne);
  stage.Take();
  stage.supervision.OnInterrupt(SIGINT);
  EXPECT_EQ(Finish(stage.Take()).number, 130);
  EXPECT_EQ(stage.state(0), RunState::kStopped);
}

TEST(Supervision, AnInterruptBeforeKeepersAreThereEndsTheJob) {
  Stage stage(SpecOf(1, 1));
  stage.supervision.Begin();
  stage.Take();
  stage.supervision.OnInterrupt(SIGINT);
  EXPECT_EQ(Finish(stage.Take()).number, 130);
}

// A job of one ps and three workers, of which worker 0 is the chief.
class NoticeStage : public Stage {
 public:
  enum Task { kPs, kChief, kOne, kTwo };
  NoticeStage() : Stage(SpecOf(1, 3)) { Start(); }
  void Word(int task, TrainingProgress word) { supervision.OnNoticeWord(task, word); }
  // The tasks that get a signal now.
  std::vector<int> Signalled() { return TasksOf(Kind::kSignal, Take()); }
};

TEST(SupervisionNotice, TheChiefSavesWhenTheOthersHaveStoppedAndThePsEndLast) {
  NoticeStage job;
  job.supervision.OnStep(job.kChief, 811);
  job.supervision.OnNotice(SIGTERM);
  EXPECT_THAT(job.Take(),
              ElementsAre(Action{Kind::kSignal, job.kOne, SIGTERM}, Action{Kind::kSignal, job.kTwo, SIGTERM}));
  job.Word(job.kOne, {.notice = "stopping"});
  job.Word(job.kOne, {.notice = "ready"});
  EXPECT_THAT(job.Take(), IsEmpty());
  job.Exit(job.kTwo, {.code = 143});
  EXPECT_THAT(job.Take(), ElementsAre(Action{Kind::kSignal, job.kChief, SIGTERM}));
  job.Word(job.kChief, {.step = 812, .notice = "saved", .checkpoint = "model.ckpt-812"});
  job.Exit(job.kChief, {.code = 143});
  EXPECT_THAT(job.Take(), IsEmpty()) << "worker 1 still runs";
  job.Exit(job.kOne, kDone);
  EXPECT_THAT(job.Take(), ElementsAre(Action{Kind::kSignal, job.kPs, SIGTERM}));
  job.Exit(job.kPs, kDone);
  EXPECT_EQ(Finish(job.Take()),
            (Action{Kind::kFinish, -1, 143, "stopped by SIGTERM at step 812; model.ckpt-812 is whole"}));
  EXPECT_EQ(job.supervision.job_state(), RunState::kStopped);
  EXPECT_TRUE(job.supervision.noticed());
}

TEST(SupervisionNotice, ANoticeToOneTaskIsOneToTheWholeJobAndTheLaunchersOwnIsTheSame) {
  NoticeStage job;
  job.Word(job.kPs, {.notice = "given", .signal = SIGUSR1});
  EXPECT_THAT(job.Signalled(), ElementsAre(job.kOne, job.kTwo));
  job.Word(job.kTwo, {.notice = "given", .signal = SIGUSR1});
  job.supervision.OnNotice(SIGUSR1);
  EXPECT_THAT(job.Take(), IsEmpty());
  for (const int task : {job.kOne, job.kTwo}) job.Exit(task, kDone);
  EXPECT_THAT(job.Signalled(), ElementsAre(job.kChief));
  job.Word(job.kChief, {.step = 7, .notice = "saved", .checkpoint = "model.ckpt-7"});
  job.Exit(job.kChief, kDone);
  job.Exit(job.kPs, kDone);
  const Action finish = Finish(job.Take());
  EXPECT_EQ(finish.text, "stopped by SIGUSR1 at step 7; model.ckpt-7 is whole");
  EXPECT_EQ(finish.number, 143);
}

TEST(SupervisionNotice, ASecondNoticeKillsEverythingAtOnce) {
  NoticeStage job;
  job.supervision.OnNotice(SIGTERM);
  job.Word(job.kOne, {.notice = "stopping"});
  job.Take();
  job.supervision.OnNotice(SIGTERM);
  EXPECT_THAT(job.TasksOf(Kind::kKill, job.Take()), ElementsAre(0, 1, 2, 3));
  for (int task = 0; task < 4; ++task) job.Exit(task, kKilled);
  const Action finish = Finish(job.Take());
  EXPECT_THAT(finish.text, HasSubstr("the checkpoint is not whole: a second signal ended the job"));
  EXPECT_EQ(finish.number, 1);
}

TEST(SupervisionNotice, TheOrderGoesOnWithinTheGraceWithTasksThatDoNotReact) {
  NoticeStage job;
  job.supervision.OnNotice(SIGTERM);
  job.Take();
  job.Pass(absl::Milliseconds(1999));
  EXPECT_THAT(job.Take(), IsEmpty());
  job.Pass(absl::Milliseconds(2));
  EXPECT_THAT(job.Signalled(), ElementsAre(job.kChief));
  job.Word(job.kChief, {.notice = "stopping"});
  job.Pass(absl::Milliseconds(1998));
  EXPECT_THAT(job.Take(), IsEmpty());
  job.Pass(absl::Milliseconds(2));
  EXPECT_THAT(job.Signalled(), ElementsAre(job.kPs));
  job.Pass(absl::Seconds(1));
  EXPECT_THAT(job.TasksOf(Kind::kKill, job.Take()), ElementsAre(0, 1, 2, 3));
  for (int task = 0; task < 4; ++task) job.Exit(task, kKilled);
  EXPECT_EQ(Finish(job.Take()),
            (Action{Kind::kFinish, -1, 1,
                    "stopped by SIGTERM; the checkpoint is not whole: it was not saved within 5 s (--grace)"}));
}

TEST(SupervisionNotice, WorkersThatFollowTheChiefEndWhenItHasEnded) {
  NoticeStage job;
  job.supervision.OnNotice(SIGTERM);
  job.Take();
  job.Word(job.kOne, {.notice = "follows"});
  EXPECT_THAT(job.Take(), IsEmpty());
  job.Word(job.kTwo, {.notice = "follows"});
  EXPECT_THAT(job.Signalled(), ElementsAre(job.kChief));
  job.Word(job.kChief, {.step = 5, .notice = "saved", .checkpoint = "model.ckpt-5"});
  EXPECT_THAT(job.Take(), IsEmpty());
  job.Exit(job.kTwo, kDone);
  job.Exit(job.kChief, {.code = 143});
  EXPECT_THAT(job.Signalled(), ElementsAre(job.kOne));
  job.Exit(job.kOne, {.signal = SIGTERM});
  EXPECT_THAT(job.Signalled(), ElementsAre(job.kPs));
}

TEST(SupervisionNotice, ASaveThatFailedIsTheLastLineAndTheExitCode) {
  NoticeStage job;
  job.supervision.OnNotice(SIGTERM);
  for (const int task : {job.kOne, job.kTwo}) job.Exit(task, kDone);
  job.Word(job.kChief, {.step = 9, .notice = "failed", .error = "model.ckpt-9: No space left on device"});
  job.Exit(job.kChief, {.code = 143});
  job.Exit(job.kPs, kDone);
  EXPECT_EQ(Finish(job.Take()), (Action{Kind::kFinish, -1, 1,
                                        "stopped by SIGTERM at step 9; the checkpoint is not whole: model.ckpt-9: No "
                                        "space left on device"}));
}

TEST(SupervisionNotice, AChiefThatDiesInsteadOfSavingIsNamed) {
  NoticeStage job;
  job.supervision.OnNotice(SIGTERM);
  for (const int task : {job.kOne, job.kTwo}) job.Exit(task, kDone);
  job.Word(job.kChief, {.notice = "stopping"});
  job.Exit(job.kChief, {.signal = SIGSEGV});
  job.Exit(job.kPs, kDone);
  const Action finish = Finish(job.Take());
  EXPECT_EQ(finish.text, "stopped by SIGTERM; the checkpoint is not whole: worker/0 was killed by SIGSEGV");
  EXPECT_EQ(finish.number, 1);
}

TEST(SupervisionNotice, AChiefThatDidNotListenYetHasLostNothingIfThereWasNoStep) {
  for (const bool steps : {false, true}) {
    NoticeStage job;
    if (steps) job.supervision.OnStep(job.kOne, 812);  // with the chief before this one
    job.supervision.OnNotice(SIGTERM);
    job.Word(job.kOne, {.notice = "ready"});
    for (const int task : {job.kOne, job.kTwo}) job.Exit(task, kDone);
    job.Exit(job.kChief, {.signal = SIGTERM});
    job.Exit(job.kPs, kDone);
    const Action finish = Finish(job.Take());
    EXPECT_EQ(finish.text, steps ? "stopped by SIGTERM at step 812; the checkpoint is not whole: worker/0 was killed "
                                   "by SIGTERM"
                                 : "stopped by SIGTERM, before the first step");
    EXPECT_EQ(finish.number, steps ? 1 : 143);
  }
}

TEST(SupervisionNotice, ProgramsThatDoNotKnowOfNoticesEndAsEver) {
  NoticeStage job;
  job.supervision.OnNotice(SIGTERM);
  for (const int task : {job.kOne, job.kTwo, job.kChief, job.kPs}) job.Exit(task, {.signal = SIGTERM});
  EXPECT_EQ(Finish(job.Take()), (Action{Kind::kFinish, -1, 143, "interrupted by SIGTERM; all tasks were stopped"}));
}

TEST(SupervisionNotice, AProgramWithoutCheckpointsSaysSo) {
  NoticeStage job;
  job.supervision.OnNotice(SIGTERM);
  for (const int task : {job.kOne, job.kTwo}) job.Exit(task, kDone);
  job.Word(job.kChief, {.step = 3, .notice = "ready"});
  job.Exit(job.kChief, {.code = 143});
  job.Exit(job.kPs, kDone);
  EXPECT_EQ(Finish(job.Take()),
            (Action{Kind::kFinish, -1, 143, "stopped by SIGTERM at step 3; the program saves no checkpoints"}));
}

TEST(SupervisionNotice, AtTheStartProgramsGetTheirSignalWhenItIsTheirTurn) {
  Stage job(SpecOf(1, 1));
  job.supervision.Begin();
  for (int task = 0; task < 2; ++task) job.supervision.OnKeeperReady(task);
  job.Take();
  job.supervision.OnNotice(SIGTERM);
  EXPECT_THAT(job.TasksOf(Kind::kSignal, job.Take()), ElementsAre(1));
  job.supervision.OnStarted(0, 100);
  EXPECT_THAT(job.Take(), IsEmpty()) << "the ps is needed until the worker has ended";
  job.supervision.OnStarted(1, 101);
  EXPECT_THAT(job.TasksOf(Kind::kSignal, job.Take()), ElementsAre(1));
  job.Exit(1, {.signal = SIGTERM});
  EXPECT_THAT(job.TasksOf(Kind::kSignal, job.Take()), ElementsAre(0));
  job.Exit(0, kDone);
  EXPECT_EQ(Finish(job.Take()).number, 143);
}

TEST(SupervisionNotice, ATaskThatIsBeingRestartedStaysDown) {
  Stage job(SpecOf(1, 2, {.limit = 3}));
  job.Start();
  job.Exit(1, kKilled);
  job.Take();
  job.supervision.OnNotice(SIGTERM);
  EXPECT_EQ(job.state(1), RunState::kStopped);
  job.Exit(2, {.signal = SIGTERM});
  job.Exit(0, kDone);
  EXPECT_EQ(Finish(job.Take()).number, 143);
}

TEST(SupervisionNotice, AChiefJobSavesBeforeWorkerZero) {
  JobSpec spec = SpecOf(1, 1);
  spec.groups.push_back({.name = "chief", .count = 1});
  Stage job(spec);
  job.Start();
  job.supervision.OnNotice(SIGTERM);
  EXPECT_THAT(job.TasksOf(Kind::kSignal, job.Take()), ElementsAre(1)) << "worker 0 is not the chief";
  job.Exit(1, kDone);
  EXPECT_THAT(job.TasksOf(Kind::kSignal, job.Take()), ElementsAre(2));
}

TEST(Supervision, ARefusedJobEndsAsAMistakeInTheFlagsBeforeAnyProgramStarts) {
  Stage stage(SpecOf(1, 1));
  stage.supervision.Begin();
  stage.supervision.OnKeeperReady(0);
  stage.Take();
  stage.supervision.OnRefused("--bind_workers: too few cores");
  stage.supervision.OnKeeperReady(1);
  const std::vector<Action> actions = stage.Take();
  EXPECT_THAT(actions, ElementsAre(Action{Kind::kFinish, -1, 2, "--bind_workers: too few cores"}));
  EXPECT_EQ(stage.supervision.job_state(), RunState::kFailed);
}

TEST(Supervision, AProgramThatStartsWhileTheJobEndsIsEndedToo) {
  Stage stage(SpecOf(0, 1));
  stage.supervision.Begin();
  stage.supervision.OnKeeperReady(0);
  stage.supervision.OnInterrupt(SIGINT);
  stage.Take();
  stage.supervision.OnStarted(0, 5);
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kSignal, 0, SIGINT}));
}

TEST(Supervision, AHangBeyondTheUsersLimitFailsTheJob) {
  Stage stage(SpecOf(0, 1));
  stage.Start();
  stage.supervision.OnHang("no step for 60 s: worker/0 waits for queue 'input'");
  EXPECT_THAT(stage.Take(), ElementsAre(Action{Kind::kSignal, 0, SIGTERM}));
  stage.Exit(0, {.signal = SIGTERM});
  const Action finish = Finish(stage.Take());
  EXPECT_EQ(finish.number, 1);
  EXPECT_THAT(finish.text, HasSubstr("queue 'input'"));
}

}  // namespace
}  // namespace millrace::launch
