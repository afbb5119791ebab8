#include "millrace/cluster/watch/bottleneck.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/watch/two_looks_testing.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Kind = Bottleneck::Kind;

constexpr int64_t kSecond = 1'000'000;

TEST(Bottleneck, APsWhoseCoresAreAllBusyIsNamed) {
  const Bottleneck found = TwoLooks().Ps(0, 0.95).Ps(1, 0.95).Workers(4).Find();
  EXPECT_EQ(found.kind, Kind::kPsCores);
  EXPECT_EQ(found.line,
            "the cores of ps/0 and ps/1, 95 % busy (1.9 of 2), while 4 workers wait (30 % of their cores busy); add ps "
            "tasks: 3 ps for 4 workers");
  EXPECT_EQ(std::pair(found.ps, found.workers), std::pair(3, 4));
}

TEST(Bottleneck, OneFullPsGetsAnother) {
  const Bottleneck found = TwoLooks().Ps(0, 0.99).Worker(0).Find();
  EXPECT_EQ(found.kind, Kind::kPsCores);
  EXPECT_THAT(found.line, HasSubstr("while the worker waits"));
  EXPECT_THAT(found.line, HasSubstr("2 ps for 1 worker"));
}

TEST(Bottleneck, WhenOnlyOneOfSeveralPsIsFullTheVariablesAreToBeSpread) {
  const Bottleneck found = TwoLooks().Ps(0, 0.05).Ps(1, 0.97).Ps(2, 0.05).Workers(4).Find();
  EXPECT_EQ(found.kind, Kind::kPsCores);
  EXPECT_THAT(found.line, StartsWith("the cores of ps/1, 97 % busy"));
  EXPECT_THAT(found.line, HasSubstr("spread the variables"));
  EXPECT_EQ(found.ps, 0);
}

TEST(Bottleneck, MoreCoresThanOneAreCountedAsAShareOfThem) {
  // Two busy cores are little of 16.
  EXPECT_EQ(TwoLooks().Add({.job = "ps", .busy = 0.125, .cores = 16, .parts = 100}).Workers(2).Find().kind,
            Kind::kWorkers);
  // And half a core is all of a quota of a half.
  const Bottleneck found = TwoLooks().Add({.job = "ps", .busy = 1, .cores = 0.5, .parts = 100}).Workers(2).Find();
  EXPECT_EQ(found.kind, Kind::kPsCores);
  EXPECT_THAT(found.line, HasSubstr("100 % busy (0.5 of 0.5)"));
}

TEST(Bottleneck, APsWhoseLinkIsFullIsNamed) {
  // As the workers tell it.
  const Bottleneck found = TwoLooks().Ps(0, 0.4).Workers(2).Moves(1, 0, 0.45).Moves(2, 0, 0.45).Find();
  EXPECT_EQ(found.kind, Kind::kPsLink);
  EXPECT_EQ(found.line, "the link of ps/0: 0.90 GB/s, 90 % of what can be; add ps tasks: 2 ps for 2 workers");
  // As the ps tells it, which does not know who called.
  const Bottleneck own = TwoLooks().Ps(0, 0.4).Workers(2).Moves(0, 1, 0.45, false).Moves(0, 2, 0.45, false).Find();
  EXPECT_EQ(own.line, found.line);
  // As both do, which is the same bytes.
  const Bottleneck both = TwoLooks()
                              .Ps(0, 0.4)
                              .Workers(2)
                              .Moves(0, 1, 0.45, false)
                              .Moves(0, 2, 0.45, false)
                              .Moves(1, 0, 0.45)
                              .Moves(2, 0, 0.45)
                              .Find();
  EXPECT_EQ(both.line, found.line);
}

TEST(Bottleneck, WithinOneHostTheLinkIsItsMemory) {
  TwoLooks looks;
  looks.Add({.job = "ps", .busy = 0.3, .cores = 8, .parts = 100, .host = "localhost"})
      .Add({.job = "worker", .busy = 0.2, .cores = 8, .steps = 50, .host = "127.0.0.1"});
  EXPECT_EQ(looks.Moves(1, 0, 2, true, "shm").Find().kind, Kind::kWorkers);
  const Bottleneck found = looks.Moves(1, 0, 6.5, true, "shm").Find();
  EXPECT_EQ(found.kind, Kind::kPsLink);
  EXPECT_THAT(found.line, HasSubstr("85 % of what can be; add ps tasks on other hosts"));
}

TEST(Bottleneck, WithoutACeilingNothingIsSaidOfTheLink) {
  const Bottleneck found = TwoLooks().Ps(0, 0.2).Workers(2).Moves(1, 0, 50).Find({});
  EXPECT_EQ(found.kind, Kind::kWorkers);
  EXPECT_EQ(found.tasks[0].link_share, 0);
  EXPECT_DOUBLE_EQ(found.tasks[0].gigabytes_per_second, 50);
  EXPECT_THAT(found.line, Not(HasSubstr("link")));
}

TEST(Bottleneck, IdlePsTasksMeanThatWorkersAreTheBottleneck) {
  const Bottleneck found = TwoLooks().Ps(0, 0.25).Ps(1, 0.2).Workers(2, 0.98).Find();
  EXPECT_EQ(found.kind, Kind::kWorkers);
  EXPECT_EQ(found.line,
            "the workers: the busiest ps, ps/0, keeps 25 % of its cores busy; add workers: 2 ps for 6 workers, or use "
            "1 ps for the 2 workers that there are");
  EXPECT_EQ(std::pair(found.ps, found.workers), std::pair(2, 6));
}

TEST(Bottleneck, NoMoreWorkersAreSuggestedThanCanBeKnown) {
  const Bottleneck found = TwoLooks().Ps(0, 0).Worker(0).Find();
  EXPECT_EQ(found.kind, Kind::kWorkers);
  EXPECT_THAT(found.line, HasSubstr("1 ps for 4 workers or more"));
}

TEST(Bottleneck, BetweenFullAndIdleNothingIsToBeChanged) {
  const Bottleneck found = TwoLooks().Ps(0, 0.64).Workers(3, 0.7).Find();
  EXPECT_EQ(found.kind, Kind::kBalanced);
  EXPECT_EQ(found.line,
            "none stands out: the busiest ps, ps/0, keeps 64 % of its cores busy, the workers 70 % of theirs; 1 ps for "
            "3 workers fit");
  // All are busy, and nobody waits.
  EXPECT_EQ(TwoLooks().Ps(0, 0.95).Workers(3, 0.95).Find().kind, Kind::kBalanced);
}

TEST(Bottleneck, TasksThatShareTheCoresOfAHostAreSeenTogether) {
  TwoLooks looks;
  looks.Add({.job = "ps", .busy = 0.3, .parts = 100, .host = "localhost"});
  for (int i = 0; i < 2; ++i) looks.Add({.job = "worker", .index = i, .busy = 0.34, .steps = 50, .host = "localhost"});
  const Bottleneck found = looks.Find();
  EXPECT_EQ(found.kind, Kind::kHostCores);
  EXPECT_EQ(found.line,
            "the cores of host localhost, which ps/0, worker/0 and worker/1 share: 2.0 of 2 busy; give them more "
            "cores, or hosts of their own");
  EXPECT_EQ(found.ps, 0);
}

TEST(Bottleneck, OtherProgramsThatTakeTheCoresOfAPsAreSeen) {
  TwoLooks looks;
  looks.Ps(0, 0.3).Workers(2);
  const auto set_host = [&](size_t i, double cores, double busy) {
    looks.before[i].status.mutable_usage()->set_host_cores(cores);
    looks.before[i].status.mutable_usage()->set_host_busy_seconds(700);
    looks.after[i].status.mutable_usage()->set_host_cores(cores);
    looks.after[i].status.mutable_usage()->set_host_busy_seconds(700 + busy);
  };
  for (size_t i = 0; i < 3; ++i) set_host(i, 2, 0.8);
  EXPECT_EQ(looks.Find().kind, Kind::kWorkers);
  // At a worker's host that is a matter of the workers.
  set_host(1, 2, 2);
  EXPECT_EQ(looks.Find().kind, Kind::kWorkers);
  set_host(0, 2, 2);
  EXPECT_EQ(looks.Find().kind, Kind::kHostCores);
  EXPECT_EQ(looks.Find().line,
            "the cores of host ps0, which ps/0 shares with other programs, which take 1.4: 2.0 of 2 busy; give them "
            "more cores, or hosts of their own");
}

TEST(Bottleneck, CoresThatAHostHasBesideThoseOfItsTasksAreNoReason) {
  // All share two cores by affinity of a host of eight: nobody else is in their way, and the host has room.
  TwoLooks looks;
  looks.Add({.job = "ps", .busy = 0.45, .parts = 100, .host = "big"})
      .Add({.job = "worker", .busy = 0.45, .steps = 50, .host = "big"});
  for (auto* views : {&looks.before, &looks.after}) {
    for (TaskView& view : *views) {
      view.status.mutable_usage()->set_host_cores(8);
      view.status.mutable_usage()->set_host_busy_seconds(views == &looks.before ? 100 : 101.8);
    }
  }
  EXPECT_EQ(looks.Find().kind, Kind::kWorkers);
}

TEST(Bottleneck, TasksWithCoresOfTheirOwnOnOneHostAreNot) {
  TwoLooks looks;
  looks.Add({.job = "ps", .busy = 0.2, .cores = 2, .parts = 100, .host = "big"});
  for (int i = 0; i < 4; ++i)
    looks.Add({.job = "worker", .index = i, .busy = 0.95, .cores = 2, .steps = 50, .host = "big"});
  EXPECT_EQ(looks.Find().kind, Kind::kWorkers);
}

TEST(Bottleneck, NothingRuns) {
  TwoLooks looks;
  looks.Add({.job = "ps"}).Add({.job = "worker"});
  EXPECT_EQ(looks.Find().kind, Kind::kNothingRuns);
  EXPECT_EQ(looks.Find().line, "nothing runs: no step ended within 1.0 s");
  // A step that waits makes no difference, but for the words.
  looks.after[1].status.add_steps()->set_driven_here(true);
  EXPECT_EQ(looks.Find().line, "nothing runs: no step ended within 1.0 s, and those that are under way wait");
}

TEST(Bottleneck, StepsThatTakeLongAreJudgedByTheirCores) {
  TwoLooks looks;
  looks.Add({.job = "ps", .busy = 0.9}).Add({.job = "worker", .busy = 0.1});
  looks.after[1].status.add_steps()->set_driven_here(true);
  looks.after[0].status.add_steps();
  EXPECT_EQ(looks.Find().kind, Kind::kPsCores);
}

TEST(Bottleneck, OneTaskHasNobodyToWaitFor) {
  const Bottleneck found = TwoLooks().Add({.job = "localhost", .busy = 0.85, .steps = 10, .parts = 10}).Find();
  EXPECT_EQ(found.kind, Kind::kOneTask);
  EXPECT_EQ(found.line, "one task does everything: localhost/0 keeps 1.7 of 2 cores busy");
  EXPECT_EQ(found.tasks.size(), 1u);
}

TEST(Bottleneck, WithoutAJobOfThatNamePsIsWhoServesAndDrivesNothing) {
  TwoLooks looks;
  looks.Add({.job = "store", .busy = 0.95, .parts = 100})
      .Add({.job = "trainer", .busy = 0.2, .steps = 50, .parts = 50});
  EXPECT_EQ(looks.Find().kind, Kind::kPsCores);
  EXPECT_THAT(looks.Find().line, HasSubstr("store/0"));
}

TEST(Bottleneck, WorkersAloneHaveNoPs) {
  const Bottleneck found = TwoLooks().Workers(2, 0.9).Find();
  EXPECT_EQ(found.kind, Kind::kNoPs);
  EXPECT_EQ(found.ps, 0);
}

TEST(Bottleneck, WorkersThatOnlyRunPartsAreWorkersAllTheSame) {
  // One of them drives the steps of all.
  TwoLooks looks;
  looks.Ps(0, 0.95).Worker(0).Add({.job = "worker", .index = 1, .busy = 0.3, .parts = 50});
  EXPECT_EQ(std::pair(looks.Find().ps, looks.Find().workers), std::pair(2, 2));
}

TEST(Bottleneck, EvaluatorsAndIdleTasksAreNoWorkers) {
  TwoLooks looks;
  looks.Ps(0, 0.95)
      .Workers(2)
      .Add({.job = "worker", .index = 2})
      .Add({.job = "evaluator", .busy = 1, .steps = 5, .parts = 5});
  EXPECT_EQ(looks.Find().workers, 2);
}

TEST(Bottleneck, OfTensorFlowsPsNothingIsKnown) {
  TwoLooks looks;
  looks.Ps(0, 0.95).Workers(2);
  for (auto* views : {&looks.before, &looks.after}) {
    (*views)[0].is_tensorflow = true;
    (*views)[0].status = TaskStatus();
  }
  const Bottleneck found = looks.Find();
  EXPECT_EQ(found.kind, Kind::kUnknown);
  EXPECT_EQ(found.line, "not known: ps/0 runs TensorFlow, which reports no figures");
  EXPECT_EQ(found.tasks.size(), 3u);
}

TEST(Bottleneck, TensorFlowsWorkersAreCounted) {
  TwoLooks looks;
  looks.Ps(0, 0.95).Workers(2);
  for (auto* views : {&looks.before, &looks.after}) {
    for (int i : {1, 2}) {
      (*views)[i].is_tensorflow = true;
      (*views)[i].status = TaskStatus();
    }
  }
  const Bottleneck found = looks.Find();
  EXPECT_EQ(found.kind, Kind::kPsCores);
  EXPECT_EQ(std::pair(found.ps, found.workers), std::pair(2, 2));
}

TEST(Bottleneck, ATaskThatWasRestartedHasNoRates) {
  TwoLooks looks;
  looks.Ps(0, 0.95).Ps(1, 0.3).Workers(2);
  // With counters that say nothing of the process before.
  looks.after[0].status.mutable_devices(0)->set_incarnation(5);
  looks.after[0].status.mutable_usage()->set_user_seconds(0.2);
  looks.after[0].status.set_parts_finished(3);
  const Bottleneck found = looks.Find();
  EXPECT_EQ(found.tasks[0].unknown, "was restarted meanwhile");
  EXPECT_EQ(found.tasks[0].busy_cores, 0);
  EXPECT_EQ(found.kind, Kind::kWorkers);
  EXPECT_THAT(found.line, HasSubstr("(as far as is known: ps/0 was restarted meanwhile)"));
  // Also when it has come further than the one before, or is known by its start alone.
  looks.after[0].status.mutable_usage()->set_user_seconds(100);
  looks.after[0].status.set_parts_finished(5000);
  EXPECT_EQ(looks.Find().tasks[0].unknown, "was restarted meanwhile");
  looks.after[0].status.mutable_devices(0)->set_incarnation(looks.before[0].status.devices(0).incarnation());
  EXPECT_EQ(looks.Find().tasks[0].unknown, "");
  looks.after[0].status.set_started_micros(looks.after[0].status.now_micros() - 10);
  EXPECT_EQ(looks.Find().tasks[0].unknown, "was restarted meanwhile");
}

TEST(Bottleneck, TasksThatDoNotAnswerAreNotJudged) {
  TwoLooks looks;
  looks.Ps(0, 0.95).Workers(1);
  looks.before[0].answer = absl::UnavailableError("gone");
  looks.before[0].status = TaskStatus();
  EXPECT_EQ(looks.Find().line, "not known: ps/0 did not answer the first time");
  looks.after[0].answer = absl::UnavailableError("gone");
  looks.after[0].status = TaskStatus();
  EXPECT_EQ(looks.Find().line, "not known: ps/0 does not answer");
  // Nor those that have come or gone meanwhile.
  looks.before.clear();
  EXPECT_EQ(looks.Find().kind, Kind::kUnknown);
  EXPECT_EQ(FindBottleneck({}, {}, {}).kind, Kind::kUnknown);
}

TEST(Bottleneck, ATaskOfAnOlderVersionTellsNothing) {
  TwoLooks looks;
  looks.Ps(0, 0.95).Workers(1);
  looks.after[0].status.clear_usage();
  EXPECT_EQ(looks.Find().line, "not known: ps/0 has a version that reports no figures");
}

TEST(Bottleneck, EachTasksTimesAreByItsOwnClock) {
  // Hours apart, and asked at different moments.
  TwoLooks looks;
  looks.Add({.job = "ps", .busy = 0.95, .parts = 100, .clock = 50, .seconds = 1.5});
  for (int i = 0; i < 2; ++i)
    looks.Add({.job = "worker", .index = i, .busy = 0.3, .steps = 50, .clock = 90000.0 * (i + 1), .seconds = 0.5});
  const Bottleneck found = looks.Find();
  EXPECT_EQ(found.kind, Kind::kPsCores);
  EXPECT_NEAR(found.tasks[0].busy(), 0.95, 1e-6);
  EXPECT_NEAR(found.tasks[1].busy(), 0.3, 1e-6);
  EXPECT_NEAR(found.tasks[1].steps_per_second, 50, 1e-6);
  EXPECT_NEAR(found.tasks[1].in_steps, 0.9, 1e-6);
}

TEST(Bottleneck, AClockThatWasSetBackGivesNoRates) {
  TwoLooks looks;
  looks.Ps(0, 0.95).Workers(1);
  looks.after[0].status.set_now_micros(looks.before[0].status.now_micros() - kSecond);
  EXPECT_EQ(looks.Find().line, "not known: ps/0 has a clock that was set back meanwhile");
  looks.after[0].status.set_now_micros(looks.before[0].status.now_micros());
  EXPECT_EQ(looks.Find().kind, Kind::kUnknown);
}

}  // namespace
}  // namespace millrace
