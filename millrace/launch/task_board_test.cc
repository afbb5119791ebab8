#include "millrace/launch/task_board.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/launch/hang_watch.h"
#include "millrace/launch/job_report.h"
#include "millrace/launch/terminal_output.h"

namespace millrace::launch {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Training, MeasuresStepsPerSecondAndForgetsThePast) {
  Training training;
  absl::Time now = absl::UnixEpoch();
  EXPECT_FALSE(training.steps_per_second(now));
  for (int i = 0; i <= 100; ++i)
    training.Add({.step = i * 5, .loss = 1.0 / (i + 1)}, true, now += absl::Milliseconds(100));
  EXPECT_NEAR(*training.steps_per_second(now), 50, 1);
  EXPECT_NEAR(absl::ToDoubleSeconds(training.longest_step()), 0.1, 0.01);
  // What its output says no longer counts.
  training.Add({.step = 3}, false, now);
  EXPECT_EQ(*training.step(), 500);
  training.Add({.step = 100}, true, now += absl::Seconds(1));
  EXPECT_EQ(*training.step(), 100);
  EXPECT_FALSE(training.steps_per_second(now));
}

TEST(Training, KnowsSinceWhenAPhaseLasts) {
  Training training;
  const absl::Time start = absl::UnixEpoch();
  training.Add(TrainingProgress::WaitingFor("worker/0"), true, start);
  training.Add(TrainingProgress::WaitingFor("worker/0"), true, start + absl::Seconds(5));
  EXPECT_TRUE(training.waits());
  training.Add({.step = 1}, true, start + absl::Seconds(6));
  EXPECT_EQ(training.phase_since(), start);
  training.Add({.phase = "training"}, true, start + absl::Seconds(7));
  EXPECT_EQ(training.phase_since(), start + absl::Seconds(7));
  EXPECT_FALSE(training.waits());
}

TEST(StatusBlock, HasALineForEachTaskThatFits) {
  std::vector<TaskRow> rows;
  for (int i = 0; i < 40; ++i)
    rows.push_back({.task = absl::StrCat("worker/", i),
                    .state = "running",
                    .step = "12",
                    .loss = "0.5",
                    .rate = "3.0",
                    .since = "4 s"});
  std::vector<std::string> block = StatusBlock({rows[0]}, {}, 24, 80);
  EXPECT_THAT(block, ElementsAre("worker/0  running     4 s  step 12  loss 0.5  3.0 steps/s"));
  block = StatusBlock(rows, {}, 24, 30);
  EXPECT_EQ(block.size(), 16);
  EXPECT_THAT(block.back(), HasSubstr("25 more"));
  for (const std::string& line : block) EXPECT_LT(line.size(), 30);
  EXPECT_EQ(StatusBlock(rows, {}, 1, 1).size(), 1);
}

TEST(StatusBlock, TellsTheCoresOfThoseThatHaveTheirOwn) {
  const std::vector<TaskRow> rows = {
      {.task = "ps/0", .state = "running", .since = "4 s"},
      {.task = "worker/0", .state = "running", .since = "4 s", .cores = "0-3", .phase = "training"}};
  EXPECT_THAT(StatusBlock(rows, {}, 24, 80),
              ElementsAre("ps/0      running     4 s", "worker/0  running     4 s  cores 0-3  training"));
}

TEST(TerminalOutput, RedrawsTheBlockBelowTheOutput) {
  EXPECT_EQ(RedrawBlock(0, "out\n", {"a", "b"}), "out\na\nb\n");
  EXPECT_EQ(RedrawBlock(2, "out\n", {"a"}), "\r\033[2A\033[Jout\na\n");
  EXPECT_EQ(BlockHeight({"1234567890", "\033[31m12345\033[0m", ""}, 5), 4);
  EXPECT_EQ(CutToWidth("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\xc3\xa9\xc3\xa9");
  EXPECT_EQ(CutToWidth("\033[31mabc\033[0m", 2), "\033[31mab\033[0m");
}

TEST(JobReport, IsReadBackAndShownAsATable) {
  JobReport report = {
      .pid = 7, .command = "./p", .state = RunState::kRunning, .seconds = 61, .hang = "worker/0 waits", .waits = {"w"}};
  report.tasks = {{.task = "worker/0", .state = "running", .pid = 8, .step = 12, .loss = 0.5},
                  {.task = "ps/0", .state = "pending"}};
  const auto read = JobReport::FromJson(report.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), report.ToJson());
  const std::string text = read->ToText();
  EXPECT_THAT(text, HasSubstr("job 7: running, for 61 s"));
  EXPECT_THAT(text, HasSubstr("STEPS/S"));
  EXPECT_THAT(text, Not(HasSubstr("CORES")));
  report.tasks[0].cores = "0-3,8";
  EXPECT_EQ(JobReport::FromJson(report.ToJson())->tasks[0].cores, "0-3,8");
  EXPECT_THAT(report.ToText(),
              ContainsRegex("ADDRESS +CORES +STEP.*\n +worker/0.* - +0-3,8 +12 .*\n +ps/0.* - +any +- "));
  EXPECT_THAT(text, HasSubstr("hangs: worker/0 waits"));
  for (const char* bad : {"", "[]", "{", "{\"tasks\": 3}", "{\"tasks\": [3]}"})
    EXPECT_FALSE(JobReport::FromJson(bad).ok()) << bad;
  EXPECT_TRUE(JobReport::FromJson(R"({"tasks": [{"task": 3, "step": "x"}], "pid": "y"})").ok());
}

TEST(HangWatch, AsksAfterTheLimitAndSaysTheSameOnlyEachMinute) {
  absl::Time now = absl::UnixEpoch();
  HangWatch watch({.after = absl::Seconds(10)}, now);
  EXPECT_EQ(watch.ask_at(), now + absl::Seconds(10));
  watch.OnMove(now += absl::Seconds(5), absl::Seconds(1));
  EXPECT_EQ(watch.ask_at(), now + absl::Seconds(10));
  now = watch.ask_at();
  watch.OnAsked();
  EXPECT_EQ(watch.ask_at(), absl::InfiniteFuture());
  EXPECT_TRUE(watch.OnAnswer(now, "worker/0 waits 10 s"));
  now += absl::Seconds(10);
  EXPECT_FALSE(watch.OnAnswer(now, "worker/0 waits 20 s"));
  EXPECT_TRUE(watch.OnAnswer(now, "worker/1 does not answer"));
  EXPECT_FALSE(watch.OnAnswer(now += absl::Seconds(59), "worker/1 does not answer"));
  EXPECT_TRUE(watch.OnAnswer(now += absl::Seconds(1), "worker/1 does not answer"));
  watch.OnMove(now, absl::ZeroDuration());
  EXPECT_EQ(watch.cause(), "");
  EXPECT_TRUE(watch.OnAnswer(now += absl::Seconds(10), "worker/1 does not answer"));
}

TEST(HangWatch, IsQuietAboutQuietJobsAndAsksThemLessAndLess) {
  absl::Time now = absl::UnixEpoch();
  HangWatch watch({.after = absl::Seconds(10)}, now);
  absl::Duration before = absl::ZeroDuration();
  for (int i = 0; i < 10; ++i) {
    now = watch.ask_at();
    EXPECT_FALSE(watch.OnAnswer(now, ""));
    EXPECT_GE(watch.ask_at() - now, before);
    before = watch.ask_at() - now;
  }
  EXPECT_EQ(before, absl::Minutes(1));
}

TEST(HangWatch, AsksAgainSoonWhenItAskedAMomentTooEarly) {
  absl::Time now = absl::UnixEpoch();
  HangWatch watch({.after = absl::Seconds(10)}, now);
  EXPECT_LT(watch.wait_limit(), absl::Seconds(10));
  now = watch.ask_at();
  watch.OnAnswer(now, "");
  EXPECT_EQ(watch.ask_at(), now + absl::Seconds(5));
}

TEST(HangWatch, SlowStepsAreNoHang) {
  absl::Time now = absl::UnixEpoch();
  HangWatch watch({.after = absl::Seconds(10)}, now);
  watch.OnMove(now, absl::Seconds(20));
  EXPECT_EQ(watch.ask_at(), now + absl::Seconds(60));
}

TEST(HangWatch, KillsOnlyWhatHangsForAsLongAsItMay) {
  absl::Time now = absl::UnixEpoch();
  HangWatch watch({.after = absl::Seconds(10), .kill = absl::Seconds(30)}, now);
  EXPECT_FALSE(watch.ShouldKill(now + absl::Hours(1)));
  watch.OnAnswer(now + absl::Seconds(10), "x");
  EXPECT_FALSE(watch.ShouldKill(now + absl::Seconds(29)));
  EXPECT_TRUE(watch.ShouldKill(now + absl::Seconds(30)));
}

}  // namespace
}  // namespace millrace::launch
