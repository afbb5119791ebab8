#include "millrace/cluster/watch/hang_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/status.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using StatusWait = TaskStatus::Wait;

constexpr int64_t kReportSecond = 1'000'000;

// A task as it tells about itself, on a clock of its own.
class ToldTask {
 public:
  explicit ToldTask(const std::string& job, int index, int64_t clock_seconds = 1000)
      : now_(clock_seconds * kReportSecond) {
    view_.task = absl::StrCat("/job:", job, "/replica:0/task:", index);
    view_.address = absl::StrCat(job, index, ":2222");
    view_.status.set_task(view_.task);
    view_.status.set_now_micros(now_);
  }

  ToldTask& Session(const std::string& handle, double last_step_ago = -1) {
    TaskStatus::Session* session = view_.status.add_sessions();
    session->set_handle(handle);
    session->set_master(view_.task);
    if (last_step_ago >= 0) {
      session->set_last_step_finished_micros(Ago(last_step_ago));
      view_.status.set_last_step_finished_micros(Ago(last_step_ago));
      view_.status.set_steps_finished(7);
    }
    return *this;
  }
  ToldTask& Drives(int64_t step, double seconds, std::vector<std::string> waits_for, const std::string& session = "s") {
    TaskStatus::Step* entry = Step(step, seconds, session);
    entry->set_driven_here(true);
    for (const std::string& task : waits_for) entry->add_waits_for(task);
    return *this;
  }
  ToldTask& Runs(int64_t step, double seconds) {
    Step(step, seconds, "s");
    return *this;
  }
  ToldTask& Wait(TaskStatus::Wait wait, double seconds) {
    wait.set_since_micros(Ago(seconds));
    *view_.status.add_waits() = std::move(wait);
    return *this;
  }
  ToldTask& Tensor(int64_t step, double seconds, const std::string& tensor, const std::string& peer) {
    TaskStatus::Wait wait;
    wait.set_kind(StatusWait::TENSOR);
    wait.set_node(tensor);
    wait.set_tensor(tensor);
    wait.set_peer(peer);
    wait.set_what("this tensor from " + peer);
    wait.set_step_id(step);
    return Wait(std::move(wait), seconds);
  }
  ToldTask& Resource(StatusWait::Kind kind, int64_t step, double seconds, const std::string& node,
                     const std::string& resource, int64_t has, int64_t needs,
                     StatusWait::ResourceKind resource_kind = StatusWait::QUEUE) {
    TaskStatus::Wait wait;
    wait.set_kind(kind);
    wait.set_node(node);
    wait.set_resource(resource);
    wait.set_resource_kind(resource_kind);
    wait.set_what("elements of " + resource);
    wait.set_has(has);
    wait.set_needs(needs);
    wait.set_step_id(step);
    return Wait(std::move(wait), seconds);
  }
  ToldTask& Process(double seconds, const std::string& what, const std::string& peer = "") {
    TaskStatus::Wait wait;
    wait.set_kind(StatusWait::PEER);
    wait.set_node("session");
    wait.set_what(what);
    wait.set_peer(peer);
    return Wait(std::move(wait), seconds);
  }
  ToldTask& Silent(Status why = DeadlineExceeded("no answer in 5s")) {
    view_.answer = std::move(why);
    view_.status.Clear();
    return *this;
  }

  operator TaskView() const { return view_; }  // NOLINT: a list of them is what is explained

 private:
  int64_t Ago(double seconds) const { return now_ - static_cast<int64_t>(seconds * kReportSecond); }
  TaskStatus::Step* Step(int64_t step, double seconds, const std::string& session) {
    TaskStatus::Step* entry = view_.status.add_steps();
    entry->set_id(step);
    entry->set_session(session);
    entry->set_since_micros(Ago(seconds));
    return entry;
  }

  const int64_t now_;
  TaskView view_;
};

const std::string kPs0 = "/job:ps/replica:0/task:0", kWorker0 = "/job:worker/replica:0/task:0",
                  kWorker1 = "/job:worker/replica:0/task:1";

HangReport Explain(const std::vector<TaskView>& tasks) { return ExplainHang(tasks, absl::Seconds(10)); }

TEST(HangReport, IsEmptyWhenNothingWaitsForLong) {
  const HangReport report =
      Explain({ToldTask("ps", 0).Runs(17, 3).Resource(StatusWait::ELEMENTS, 17, 3, "take", "FIFOQueue 'q'", 0, 1),
               ToldTask("worker", 0).Session("s", 3).Drives(17, 3, {kPs0}).Tensor(17, 3, "take", kPs0)});
  EXPECT_EQ(report.cause, "");
  EXPECT_THAT(report.waits, IsEmpty());
  EXPECT_THAT(report.busy, IsEmpty());
  EXPECT_FALSE(report.somebody_waits);
  EXPECT_EQ(ExplainHang({}).cause, "");
}

TEST(HangReport, FollowsATensorToTheQueueThatNobodyFills) {
  // The clocks of the tasks are hours apart.
  const HangReport report = Explain(
      {ToldTask("worker", 0, 90000).Session("s", 40).Drives(17, 31, {kWorker0, kPs0}).Tensor(17, 31, "take", kPs0),
       ToldTask("ps", 0).Runs(17, 30).Resource(StatusWait::ELEMENTS, 17, 30, "take", "FIFOQueue 'numbers'", 0, 1)});
  EXPECT_THAT(report.cause, AllOf(StartsWith("FIFOQueue 'numbers' on ps/0 stays empty and nobody fills it"),
                                  HasSubstr("node take"), HasSubstr("30 s"), HasSubstr("step 17 of worker/0")));
  EXPECT_THAT(report.waits,
              ElementsAre("worker/0 waits 31 s for tensor take from ps/0 (step 17)",
                          "ps/0 waits 30 s at node take for elements of FIFOQueue 'numbers' (step 17 of worker/0)"));
  EXPECT_TRUE(report.somebody_waits);
}

TEST(HangReport, SaysHowManyElementsAQueueHas) {
  const HangReport report = Explain({ToldTask("worker", 0)
                                         .Session("s")
                                         .Drives(17, 31, {kWorker0})
                                         .Resource(StatusWait::ELEMENTS, 17, 31, "batch", "FIFOQueue 'q'", 3, 32)});
  EXPECT_THAT(report.cause, HasSubstr("FIFOQueue 'q' on worker/0 has 3 of the 32 that are wanted"));
}

TEST(HangReport, NamesAQueueThatNobodyEmpties) {
  const HangReport report =
      Explain({ToldTask("worker", 0).Session("s", 20).Drives(3, 20, {kPs0}),
               ToldTask("ps", 0).Runs(3, 20).Resource(StatusWait::ROOM, 3, 19, "put", "FIFOQueue 'q'", 2, 2)});
  EXPECT_THAT(report.cause,
              AllOf(StartsWith("FIFOQueue 'q' on ps/0 stays full (2 of 2 elements) and nobody takes from it"),
                    HasSubstr("node put")));
}

TEST(HangReport, AFullQueueBesideStepsThatGoOnIsNoHang) {
  const HangReport report = Explain({ToldTask("worker", 0)
                                         .Session("s", 0.2)
                                         .Drives(3, 60, {kWorker0})
                                         .Drives(99, 0.1, {kWorker0})
                                         .Resource(StatusWait::ROOM, 3, 59, "put", "FIFOQueue 'q'", 2, 2)});
  EXPECT_EQ(report.cause, "");
  EXPECT_THAT(report.waits, IsEmpty());
}

TEST(HangReport, OtherSessionsOfTheTaskDoNotHideOneThatHangs) {
  const HangReport report = Explain({ToldTask("worker", 0)
                                         .Session("busy", 0.2)
                                         .Session("s")
                                         .Drives(3, 60, {kWorker0})
                                         .Resource(StatusWait::ELEMENTS, 3, 59, "take", "FIFOQueue 'q'", 0, 1)});
  EXPECT_THAT(report.cause, HasSubstr("FIFOQueue 'q'"));
}

TEST(HangReport, ATaskThatDoesNotAnswerIsTheCause) {
  for (const bool refused : {false, true}) {
    const HangReport report =
        Explain({ToldTask("worker", 0).Session("s", 15).Drives(5, 14, {kWorker0, kPs0}).Tensor(5, 14, "w/read", kPs0),
                 ToldTask("worker", 1)
                     .Session("s", 15)
                     .Drives(6, 13, {kWorker1})
                     .Resource(StatusWait::ELEMENTS, 6, 13, "take", "FIFOQueue 'tokens'", 0, 1),
                 refused ? ToldTask("ps", 0).Silent(Unavailable("Connection refused")) : ToldTask("ps", 0).Silent()});
    EXPECT_THAT(
        report.cause,
        StartsWith(refused
                       ? "ps/0 at ps0:2222 cannot be reached: it has ended or was never started (Connection refused)"
                       : "ps/0 at ps0:2222 does not answer: it is stopped, swamped or cut off"));
    EXPECT_THAT(report.cause, HasSubstr("; worker/0 waits for it"));
    EXPECT_THAT(report.waits, Contains("worker/0 waits 14 s for tensor w/read from ps/0 (step 5)"));
    EXPECT_THAT(report.waits.back(), HasSubstr("ps/0"));
  }
}

TEST(HangReport, OfTwoSilentTasksTheOneThatIsWaitedForIsTheCause) {
  const HangReport report =
      Explain({ToldTask("evaluator", 0).Silent(), ToldTask("worker", 0).Session("s").Drives(5, 14, {kPs0}),
               ToldTask("ps", 0).Silent()});
  EXPECT_THAT(report.cause, AllOf(StartsWith("ps/0"), HasSubstr("worker/0 waits for it")));
  EXPECT_THAT(report.waits, Contains("worker/0 waits 14 s for the part of ps/0 in step 5"));
  EXPECT_TRUE(report.somebody_waits);
}

TEST(HangReport, ATaskThatNobodyMissesIsToldApart) {
  const HangReport report = Explain({ToldTask("worker", 0).Session("s", 0.1), ToldTask("ps", 0).Silent()});
  EXPECT_THAT(report.cause, StartsWith("ps/0"));
  EXPECT_THAT(report.cause, Not(HasSubstr("wait for it")));
  EXPECT_FALSE(report.somebody_waits);
}

TEST(HangReport, NamesABarrierThatIsShortOfOne) {
  const HangReport report =
      Explain({ToldTask("ps", 0).Runs(3, 20).Resource(StatusWait::ELEMENTS, 3, 20, "meet", "Barrier 'all'", 2, 3,
                                                      StatusWait::BARRIER),
               ToldTask("worker", 0).Session("s").Drives(3, 20, {kPs0}), ToldTask("worker", 1).Session("t", 30)});
  EXPECT_THAT(report.cause,
              AllOf(StartsWith("Barrier 'all' on ps/0 is short of 1 (2 of 3 elements)"), HasSubstr("node meet"),
                    HasSubstr("worker/1, which runs no step; its last one ended 30 s ago")));
}

// Synchronous training: the chief takes gradients in one step and both workers wait for tokens in others.
std::vector<TaskView> Synchronous(const ToldTask& worker1) {
  return {ToldTask("ps", 0)
              .Runs(30, 15)
              .Runs(31, 14)
              .Resource(StatusWait::ELEMENTS, 31, 14.5, "sync/take_token", "FIFOQueue 'sync_token_q'", 0, 1,
                        StatusWait::TOKEN_QUEUE)
              .Resource(StatusWait::ELEMENTS, 30, 14, "sync/take_grad", "accumulator 'sync/w'", 1, 2,
                        StatusWait::ACCUMULATOR),
          ToldTask("worker", 0).Session("s", 15).Drives(30, 15, {kPs0}).Drives(31, 14, {kPs0}), worker1};
}

TEST(HangReport, NamesTheWorkerThatGivesNoGradient) {
  EXPECT_THAT(Explain(Synchronous(ToldTask("worker", 1).Session("t", 22))).cause,
              "accumulator 'sync/w' on ps/0 has 1 of 2 gradients: none comes from worker/1, which runs no step; its "
              "last one ended 22 s ago");
  EXPECT_THAT(Explain(Synchronous(ToldTask("worker", 1))).cause,
              "accumulator 'sync/w' on ps/0 has 1 of 2 gradients: none comes from worker/1, which has no session and "
              "runs no step; it has run none yet");
  const HangReport silent = Explain(Synchronous(ToldTask("worker", 1).Silent()));
  EXPECT_THAT(
      silent.cause,
      StartsWith("worker/1 at worker1:2222 does not answer: it is stopped, swamped or cut off; ps/0 waits for it"));
  EXPECT_THAT(silent.waits, Contains(HasSubstr("accumulator 'sync/w'")));
  EXPECT_THAT(
      Explain(Synchronous(ToldTask("worker", 1).Process(20, "variables w, b to be initialised by worker/7"))).cause,
      HasSubstr("variables w, b"));
}

TEST(HangReport, SaysWhenMoreGradientsAreRequiredThanWorkersGive) {
  const HangReport report =
      Explain(Synchronous(ToldTask("worker", 1)
                              .Session("t", 15)
                              .Drives(40, 14, {kWorker1})
                              .Resource(StatusWait::ELEMENTS, 40, 13, "take_token", "FIFOQueue 'sync_token_q'", 0, 1,
                                        StatusWait::TOKEN_QUEUE)));
  EXPECT_THAT(report.cause, AllOf(StartsWith("accumulator 'sync/w' on ps/0 has 1 of 2 gradients: every worker waits"),
                                  HasSubstr("stale")));
}

TEST(HangReport, InputThatDoesNotComeExplainsMoreThanGradientsThatDoNot) {
  const HangReport report =
      Explain(Synchronous(ToldTask("worker", 1)
                              .Session("t", 15)
                              .Drives(40, 14, {kWorker1})
                              .Resource(StatusWait::ELEMENTS, 40, 13, "batch", "FIFOQueue 'input'", 0, 1)));
  EXPECT_THAT(report.cause, StartsWith("FIFOQueue 'input' on worker/1 stays empty"));
}

TEST(HangReport, NamesTheWorkerThatOthersAreTooFarAheadOf) {
  const auto gate = [](const ToldTask& worker1) {
    TaskStatus::Wait wait;
    wait.set_kind(StatusWait::ELEMENTS);
    wait.set_node("pass");
    wait.set_resource("step gate 'g'");
    wait.set_resource_kind(StatusWait::STEP_GATE);
    wait.set_what("worker 1 (9 of 12 steps)");
    wait.set_step_id(31);
    return Explain({ToldTask("ps", 0).Runs(31, 14).Wait(wait, 14),
                    ToldTask("worker", 0).Session("s", 15).Drives(31, 14, {kPs0}), worker1})
        .cause;
  };
  EXPECT_EQ(gate(ToldTask("worker", 1).Session("t", 22)),
            "step gate 'g' on ps/0 waits for worker 1 (9 of 12 steps): no step comes from worker/1, which runs no "
            "step; its last one ended 22 s ago");
  EXPECT_EQ(gate(ToldTask("worker", 1).Session("t", 22).Drives(40, 14, {kWorker1})), "");
}

TEST(HangReport, AResourceWhoseKindAnOlderTaskDoesNotSayIsNamedAllTheSame) {
  const HangReport report =
      Explain({ToldTask("ps", 0).Runs(3, 20).Resource(StatusWait::ELEMENTS, 3, 20, "take", "accumulator 'w'", 1, 2,
                                                      StatusWait::OTHER_RESOURCE),
               ToldTask("worker", 0).Session("s", 25).Drives(3, 20, {kPs0})});
  EXPECT_THAT(report.cause, StartsWith("accumulator 'w' on ps/0 has 1 of the 2 that are wanted"));
}

TEST(HangReport, AWorkerThatIsAtWorkIsNoHang) {
  const HangReport report = Explain(Synchronous(ToldTask("worker", 1).Session("t", 15).Drives(40, 14, {kWorker1})));
  EXPECT_EQ(report.cause, "");
  EXPECT_THAT(report.busy, ElementsAre("worker/1 has been at work on step 40 for 14 s and waits for nothing"));
}

TEST(HangReport, ALongStepOnAnotherTaskIsNoHang) {
  const HangReport report =
      Explain({ToldTask("worker", 0).Session("s").Drives(8, 60, {kWorker0, kPs0}).Tensor(8, 60, "loss", kPs0),
               ToldTask("ps", 0).Runs(8, 60)});
  EXPECT_EQ(report.cause, "");
  EXPECT_THAT(report.busy, ElementsAre("ps/0 has been at work on step 8 of worker/0 for 60 s and waits for nothing"));
}

TEST(HangReport, NamesWhoDoesNotInitialiseTheVariables) {
  const HangReport report =
      Explain({ToldTask("ps", 0), ToldTask("worker", 0),
               ToldTask("worker", 1)
                   .Session("s", 1)
                   .Process(12, "variables w, b to be initialised by worker/0 (chief)", kWorker0)});
  EXPECT_EQ(report.cause,
            "worker/1 waits 12 s for variables w, b to be initialised by worker/0 (chief); worker/0 has no session "
            "and runs no step; it has run none yet");
  const HangReport silent = Explain({ToldTask("ps", 0), ToldTask("worker", 0).Silent(),
                                     ToldTask("worker", 1)
                                         .Session("s", 1)
                                         .Process(12, "variables w to be initialised by worker/0 (chief)", kWorker0)});
  EXPECT_THAT(silent.cause,
              AllOf(StartsWith("worker/0 at worker0:2222 does not answer"), HasSubstr("worker/1 waits for it")));
}

TEST(HangReport, TheNameOfATaskInASentenceIsNotTakenForThePeer) {
  const HangReport report =
      Explain({ToldTask("ps", 0), ToldTask("worker", 0),
               ToldTask("worker", 1).Session("s", 1).Process(12, "the file worker/0 in /tmp, which ps/0 writes")});
  EXPECT_EQ(report.cause, "worker/1 waits 12 s for the file worker/0 in /tmp, which ps/0 writes");
}

TEST(HangReport, WhatTheChiefWaitsForComesBeforeWhatOthersWantOfIt) {
  const HangReport report = Explain(
      {ToldTask("ps", 0).Runs(9, 30).Resource(StatusWait::ELEMENTS, 9, 30, "init/read", "FIFOQueue 'files'", 0, 1),
       ToldTask("worker", 0).Session("s").Drives(9, 30, {kPs0}),
       ToldTask("worker", 1).Process(40, "variables w to be initialised by worker/0 (chief)", kWorker0)});
  EXPECT_THAT(report.cause, StartsWith("FIFOQueue 'files' on ps/0"));
}

TEST(HangReport, NamesATaskThatDoesNotKnowTheStep) {
  const HangReport report = Explain(
      {ToldTask("worker", 0).Session("s").Drives(8, 60, {kWorker0}).Tensor(8, 60, "loss", kPs0), ToldTask("ps", 0)});
  EXPECT_THAT(report.cause, AllOf(StartsWith("worker/0 waits 60 s for tensor loss from ps/0"),
                                  HasSubstr("ps/0 does not run that step")));
}

TEST(HangReport, AgesAreShort) {
  const auto line = [](double seconds) {
    return ExplainHang(std::vector<TaskView>{ToldTask("worker", 0, 1'000'000).Process(seconds, "rain")},
                       absl::Milliseconds(1))
        .cause;
  };
  EXPECT_EQ(line(0.25), "worker/0 waits 250 ms for rain");
  EXPECT_EQ(line(12.7), "worker/0 waits 12 s for rain");
  EXPECT_EQ(line(400), "worker/0 waits 6 min for rain");
  EXPECT_EQ(line(40000), "worker/0 waits 11 h for rain");
}

TEST(HangReport, StrangeAnswersAreTakenAsTheyCome) {
  TaskStatus odd;
  odd.set_now_micros(INT64_MIN + 5);
  auto* wait = odd.add_waits();
  wait->set_since_micros(INT64_MAX);
  wait->set_kind(StatusWait::TENSOR);
  wait->set_peer("\xff nobody");
  auto* step = odd.add_steps();
  step->set_driven_here(true);
  step->add_waits_for("nobody");
  EXPECT_EQ(ExplainHang(std::vector<TaskView>{
                            {.task = "odd", .address = "", .answer = {}, .is_tensorflow = false, .status = odd}})
                .cause,
            "");
  EXPECT_EQ(ShortTaskName("/job:worker/replica:0/task:1/device:CPU:0"), "worker/1");
  EXPECT_EQ(ShortTaskName("/job:worker/task:1"), "worker/1");
  EXPECT_EQ(ShortTaskName("what"), "what");
  EXPECT_EQ(ShortTaskName(""), "");
}

}  // namespace
}  // namespace millrace
