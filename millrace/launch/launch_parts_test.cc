// The parts of a launcher that only compute.
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/launch/frame.h"
#include "millrace/launch/hang_watch.h"
#include "millrace/launch/job_report.h"
#include "millrace/launch/job_spec.h"
#include "millrace/launch/keeper_link.h"
#include "millrace/launch/stream_lines.h"
#include "millrace/launch/task_board.h"
#include "millrace/launch/task_place.h"
#include "millrace/launch/terminal_output.h"
#include "millrace/launch/training_text.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RestartPolicy, IsReadAndPausesDoubleUpToAMinute) {
  EXPECT_EQ(RestartPolicy::Parse("never")->limit, 0);
  EXPECT_EQ(RestartPolicy::Parse("on-failure")->limit, 3);
  EXPECT_EQ(RestartPolicy::Parse("on-failure:12")->limit, 12);
  for (const char* bad : {"", "always", "on-failure:", "on-failure:0", "on-failure:-1", "on-failure:x", "on-failure3"}) {
    const auto policy = RestartPolicy::Parse(bad);
    ASSERT_FALSE(policy.ok()) << bad;
    EXPECT_THAT(std::string(policy.status().message()), HasSubstr("on-failure:N"));
  }
  const RestartPolicy policy = {.limit = 100};
  EXPECT_EQ(policy.Pause(0), absl::Seconds(1));
  EXPECT_EQ(policy.Pause(3), absl::Seconds(8));
  EXPECT_EQ(policy.Pause(50), absl::Minutes(1));
}

TEST(Hosts, LinesGiveHostsWithSlotsAndAddresses) {
  const auto hosts = ParseHosts("# ours\n\na\nme@b slots=4   # big\n c slots=2 address=10.0.0.3\r\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  ASSERT_EQ(hosts->size(), 3);
  EXPECT_EQ((*hosts)[0].slots, 1);
  EXPECT_EQ((*hosts)[1].name, "me@b");
  EXPECT_EQ((*hosts)[1].slots, 4);
  EXPECT_EQ((*hosts)[1].Address(), "b");
  EXPECT_EQ((*hosts)[2].Address(), "10.0.0.3");
  for (const char* bad : {"", "# nothing", "a slots=0", "a slots=x", "a slots", "a b", "-oProxyCommand=x", "slots=3", "a address="}) {
    EXPECT_FALSE(ParseHosts(bad).ok()) << bad;
  }
  EXPECT_THAT(std::string(ParseHosts("a\nb slots=x").status().message()), HasSubstr("line 2"));
}

TEST(Hosts, AreFilledInOrderAndMustSuffice) {
  JobSpec job = {.groups = {{.name = "ps", .count = 1}, {.name = "worker", .count = 3}}, .program = {"p"}};
  EXPECT_THAT(*PlaceTasks(job), ElementsAre(-1, -1, -1, -1));
  job.hosts = {{.name = "a", .slots = 2}, {.name = "b", .slots = 5}};
  EXPECT_THAT(*PlaceTasks(job), ElementsAre(0, 0, 1, 1));
  job.hosts = {{.name = "a", .slots = 2}, {.name = "b"}};
  EXPECT_THAT(std::string(job.Check().message()), HasSubstr("3 slots for 4 tasks"));
}

TEST(JobSpec, MistakesAreNamed) {
  const auto message = [](JobSpec job) { return std::string(job.Check().message()); };
  EXPECT_THAT(message({.groups = {{.name = "worker", .count = 1}}}), HasSubstr("no program"));
  EXPECT_THAT(message({.program = {"p"}}), HasSubstr("no tasks"));
  EXPECT_THAT(message({.groups = {{.name = "a b", .count = 1}}, .program = {"p"}}), HasSubstr("'a b'"));
  EXPECT_THAT(message({.groups = {{.name = "w", .count = 1}, {.name = "w", .count = 1}}, .program = {"p"}}), HasSubstr("twice"));
  EXPECT_THAT(message({.groups = {{.name = "w", .count = 20000}}, .program = {"p"}}), HasSubstr("10000"));
  EXPECT_EQ(message({.groups = {{.name = "w", .count = 1, .program = {"q"}}}}), "");
}

TEST(SplitCommand, ReadsQuotesAsAShellDoes) {
  EXPECT_THAT(*SplitCommand(R"(ssh -p 2222 -i "my key" 'a b'\ c "")"), ElementsAre("ssh", "-p", "2222", "-i", "my key", "a b c", ""));
  for (const char* bad : {"", "  ", "a 'b", "a \"b", "a \\"}) EXPECT_FALSE(SplitCommand(bad).ok()) << bad;
}

TEST(TaskPlace, IsToldInTfConfigFlagsAndBraces) {
  const ClusterAddresses cluster = {{"ps", {"a:1"}}, {"worker", {"b:1", "b:2"}}};
  const TaskName task = {"worker", 1};
  EXPECT_EQ(TfConfig(cluster, task), R"({"cluster":{"ps":["a:1"],"worker":["b:1","b:2"]},"task":{"index":1,"type":"worker"}})");
  EXPECT_THAT(HostFlags(cluster, task), ElementsAre("--ps_hosts=a:1", "--worker_hosts=b:1,b:2", "--job_name=worker", "--task_index=1"));
  EXPECT_THAT(FillIn({"p", "--h={worker_hosts}", "{job_name}-{task_index}", "{cluster_spec}", "{port} {address}", "{\"a\": {other}}"}, cluster, task, "b:2"),
              ElementsAre("p", "--h=b:1,b:2", "worker-1", "ps|a:1,worker|b:1;b:2", "2 b:2", "{\"a\": {other}}"));
}

TEST(Frames, ComeOutAsTheyWentInHoweverTheyAreCut) {
  const StartFrame start = {.arguments = {"p", "", std::string("\0\n", 2)}, .environment = {"A=b"}};
  const std::string bytes =
      absl::StrCat("Welcome!\n", kGreeting, EncodeFrame(FrameKind::kStart, start.Encode()), EncodeFrame(FrameKind::kGone, ""), EncodeFrame(FrameKind::kStdout, "x"));
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader(/*greeting=*/true);
    std::vector<Frame> frames;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.Add(absl::string_view(bytes).substr(at, piece));
      while (true) {
        auto frame = reader.Next();
        ASSERT_TRUE(frame.ok()) << frame.status();
        if (!frame->has_value()) break;
        frames.push_back(**frame);
      }
    }
    ASSERT_EQ(frames.size(), 3);
    EXPECT_EQ(StartFrame::Decode(frames[0].body)->arguments, start.arguments);
    EXPECT_EQ(frames[1].kind, FrameKind::kGone);
    EXPECT_EQ(frames[2].body, "x");
    EXPECT_EQ(reader.noise(), "Welcome!\n");
  }
}

TEST(Frames, BadBytesGiveErrors) {
  FrameReader chatter(/*greeting=*/true);
  chatter.Add(std::string(kMaxNoise + 1, 'x'));
  EXPECT_FALSE(chatter.Next().ok());
  for (const std::string& bytes : {std::string("\x07\0\0\0\0", 5), std::string("\x13\xff\xff\xff\xff", 5)}) {
    FrameReader reader(/*greeting=*/false);
    reader.Add(bytes);
    EXPECT_FALSE(reader.Next().ok());
  }
  const std::string good = StartFrame{.arguments = {"p"}, .environment = {"A=b"}}.Encode();
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(StartFrame::Decode(good.substr(0, size)).ok()) << size;
  EXPECT_FALSE(StartFrame::Decode(good + "x").ok());
  EXPECT_FALSE(StartFrame::Decode(std::string(16, '\xff')).ok());
  EXPECT_FALSE(HelloFrame::Decode(EncodeNumbers({1, 70000})).ok());
  EXPECT_FALSE(DecodeNumbers("1234567", 1).ok());
}

TEST(StreamLines, HoldsWhatIsNotALineYet) {
  StreamLines lines(/*limit=*/5);
  std::vector<std::string> got;
  const auto keep = [&](absl::string_view line) { got.emplace_back(line); };
  lines.Add("a\nb", keep);
  EXPECT_THAT(got, ElementsAre("a"));
  lines.Add("c\n\nlonger than", keep);
  EXPECT_THAT(got, ElementsAre("a", "bc", "", "longe", "r tha"));
  lines.Flush(keep);
  EXPECT_EQ(got.back(), "n");
  got.clear();
  lines.Flush(keep);
  EXPECT_THAT(got, IsEmpty());
  lines.Add("12345\nx\n", keep);
  EXPECT_THAT(got, ElementsAre("12345", "x"));
}

TEST(ForTerminal, KeepsTheCursorInItsLine) {
  EXPECT_EQ(ForTerminal("10%\r20%\r30%\r"), "30%");
  EXPECT_EQ(ForTerminal("\033[31mred\033[0m\tx"), "\033[31mred\033[0m\tx\033[0m");
  EXPECT_EQ(ForTerminal("a\033[2Jb\033[10;3Hc\bd\033"), "abcd");
  EXPECT_EQ(ForTerminal("caf\xc3\xa9"), "caf\xc3\xa9");
}

TEST(TrainingText, FindsStepAndLossInWhatProgramsPrint) {
  const auto read = [](absl::string_view line) {
    const Progress p = ReadTrainingText(line);
    return absl::StrCat(p.step ? absl::StrCat(*p.step) : "-", " ", p.loss ? absl::StrCat(*p.loss) : "-");
  };
  EXPECT_EQ(read("step 200/6000  loss 0.1803  accuracy  95.0 %  1087 steps/s"), "200 0.1803");
  EXPECT_EQ(read("INFO:tensorflow:loss = 0.43, step = 812 (0.3 sec)"), "812 0.43");
  EXPECT_EQ(read("Worker 1: training step 7 done (global step: 812)"), "812 -");
  EXPECT_EQ(read("global_step=812 train_loss: 4.3e-1."), "812 0.43");
  EXPECT_EQ(read("Step #5: Loss: nan"), "5 nan");
  EXPECT_EQ(read("{\"step\": 12, \"loss\": -1.5}"), "12 -1.5");
  EXPECT_EQ(read("Trained 6000 steps in 4.0 s"), "- -");
  EXPECT_EQ(read("step 0.3 s, lossless 5, footstep 3, step time: 12"), "- -");
  EXPECT_EQ(read("step time 3 at step 4"), "4 -");
  EXPECT_EQ(read("step 99999999999999999999999"), "- -");
  EXPECT_EQ(read(""), "- -");
}

TEST(Training, MeasuresStepsPerSecondAndForgetsThePast) {
  Training training;
  absl::Time now = absl::UnixEpoch();
  EXPECT_FALSE(training.steps_per_second(now));
  for (int i = 0; i <= 100; ++i) training.Add({.step = i * 5, .loss = 1.0 / (i + 1)}, true, now += absl::Milliseconds(100));
  EXPECT_NEAR(*training.steps_per_second(now), 50, 1);
  EXPECT_NEAR(absl::ToDoubleSeconds(training.longest_step()), 0.1, 0.01);
  // What its output says no longer counts.
  training.Add({.step = 3}, false, now);
  EXPECT_EQ(*training.step(), 500);
  training.Add({.step = 100}, true, now += absl::Seconds(1));
  EXPECT_EQ(*training.step(), 100);
  EXPECT_FALSE(training.steps_per_second(now));
}

TEST(StatusBlock, HasALineForEachTaskThatFits) {
  std::vector<TaskRow> rows;
  for (int i = 0; i < 40; ++i) rows.push_back({.task = absl::StrCat("worker/", i), .state = "running", .step = "12", .loss = "0.5", .rate = "3.0", .since = "4 s"});
  std::vector<std::string> block = StatusBlock({rows[0]}, {}, 24, 80);
  EXPECT_THAT(block, ElementsAre("worker/0  running     4 s  step 12  loss 0.5  3.0 steps/s"));
  block = StatusBlock(rows, {}, 24, 30);
  EXPECT_EQ(block.size(), 16);
  EXPECT_THAT(block.back(), HasSubstr("25 more"));
  for (const std::string& line : block) EXPECT_LT(line.size(), 30);
  EXPECT_EQ(StatusBlock(rows, {}, 1, 1).size(), 1);
}

TEST(TerminalOutput, RedrawsTheBlockBelowTheOutput) {
  EXPECT_EQ(RedrawBlock(0, "out\n", {"a", "b"}), "out\na\nb\n");
  EXPECT_EQ(RedrawBlock(2, "out\n", {"a"}), "\r\033[2A\033[Jout\na\n");
  EXPECT_EQ(BlockHeight({"1234567890", "\033[31m12345\033[0m", ""}, 5), 4);
  EXPECT_EQ(CutToWidth("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\xc3\xa9\xc3\xa9");
  EXPECT_EQ(CutToWidth("\033[31mabc\033[0m", 2), "\033[31mab\033[0m");
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
  EXPECT_TRUE(watch.OnAnswer(now, "worker/0 waits 10 s", false));
  now += absl::Seconds(10);
  EXPECT_FALSE(watch.OnAnswer(now, "worker/0 waits 20 s", false));
  EXPECT_TRUE(watch.OnAnswer(now, "worker/1 does not answer", false));
  EXPECT_FALSE(watch.OnAnswer(now += absl::Seconds(59), "worker/1 does not answer", false));
  EXPECT_TRUE(watch.OnAnswer(now += absl::Seconds(1), "worker/1 does not answer", false));
  watch.OnMove(now, absl::ZeroDuration());
  EXPECT_EQ(watch.cause(), "");
  EXPECT_TRUE(watch.OnAnswer(now += absl::Seconds(10), "worker/1 does not answer", false));
}

TEST(HangWatch, IsQuietAboutQuietJobsAndAsksThemLessAndLess) {
  absl::Time now = absl::UnixEpoch();
  HangWatch watch({.after = absl::Seconds(10)}, now);
  absl::Duration before = absl::ZeroDuration();
  for (int i = 0; i < 10; ++i) {
    now = watch.ask_at();
    EXPECT_FALSE(watch.OnAnswer(now, "", false));
    EXPECT_GE(watch.ask_at() - now, before);
    before = watch.ask_at() - now;
  }
  EXPECT_EQ(before, absl::Minutes(1));
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
  watch.OnAnswer(now + absl::Seconds(10), "x", false);
  EXPECT_FALSE(watch.ShouldKill(now + absl::Seconds(29)));
  EXPECT_TRUE(watch.ShouldKill(now + absl::Seconds(30)));
}

TEST(JobReport, IsReadBackAndShownAsATable) {
  JobReport report = {.pid = 7, .command = "./p", .state = RunState::kRunning, .seconds = 61, .hang = "worker/0 waits", .waits = {"w"}};
  report.tasks = {{.task = "worker/0", .state = "running", .pid = 8, .step = 12, .loss = 0.5}, {.task = "ps/0", .state = "pending"}};
  const auto read = JobReport::FromJson(report.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), report.ToJson());
  const std::string text = read->ToText();
  EXPECT_THAT(text, HasSubstr("job 7: running, for 61 s"));
  EXPECT_THAT(text, HasSubstr("STEPS/S"));
  EXPECT_THAT(text, HasSubstr("hangs: worker/0 waits"));
  for (const char* bad : {"", "[]", "{", "{\"tasks\": 3}", "{\"tasks\": [3]}"}) EXPECT_FALSE(JobReport::FromJson(bad).ok()) << bad;
  EXPECT_TRUE(JobReport::FromJson(R"({"tasks": [{"task": 3, "step": "x"}], "pid": "y"})").ok());
}

TEST(Ssh, CommandQuotesWhatTheShellThereReads) {
  const std::vector<std::string> words = SshCommand({.ssh = {"ssh", "-p", "22"}, .millrace = "/opt/it's/millrace", .directory = "/a b"}, "me@host");
  EXPECT_EQ(words.front(), "ssh");
  EXPECT_EQ(words[words.size() - 2], "me@host");
  EXPECT_EQ(words[words.size() - 3], "--");
  EXPECT_EQ(words.back(), R"(cd '/a b' && exec '/opt/it'\''s/millrace' task-keeper 30.000)");
  EXPECT_THAT(absl::StrJoin(words, " "), HasSubstr("-o BatchMode=yes"));
}

}  // namespace
}  // namespace millrace::launch
