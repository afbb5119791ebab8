#include "millrace/launch/keeper_frame.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/launch/stream_lines.h"
#include "millrace/launch/training_text.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Frames, ComeOutAsTheyWentInHoweverTheyAreCut) {
  const StartFrame start = {.arguments = {"p", "", std::string("\0\n", 2)}, .environment = {"A=b"}};
  const std::string bytes =
      absl::StrCat("Welcome!\n", kGreeting, EncodeKeeperFrame(KeeperFrameKind::kStart, start.Encode()),
                   EncodeKeeperFrame(KeeperFrameKind::kGone, ""), EncodeKeeperFrame(KeeperFrameKind::kStdout, "x"));
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    KeeperFrameReader reader(/*greeting=*/true);
    std::vector<KeeperFrame> frames;
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
    EXPECT_EQ(frames[1].kind, KeeperFrameKind::kGone);
    EXPECT_EQ(frames[2].body, "x");
    EXPECT_EQ(reader.noise(), "Welcome!\n");
  }
}

TEST(Frames, CredentialsGoAlongWithAndWithoutCores) {
  for (const std::vector<int>& cores : {std::vector<int>(), std::vector<int>{1, 2}}) {
    StartFrame start = {.arguments = {"p"}, .environment = {}, .cores = cores};
    start.credentials = {"a certificate", "its key", "an authority"};
    const StartFrame decoded = StartFrame::Decode(start.Encode()).value();
    EXPECT_EQ(decoded.cores, cores);
    ASSERT_TRUE(decoded.credentials.has_value());
    EXPECT_EQ(decoded.credentials->certificate, "a certificate");
    EXPECT_EQ(decoded.credentials->key, "its key");
    EXPECT_EQ(decoded.credentials->authority, "an authority");
    EXPECT_FALSE(StartFrame::Decode(start.Encode() + "x").ok());
    EXPECT_FALSE(StartFrame::Decode(start.Encode().substr(0, start.Encode().size() - 1)).ok());
  }
}

TEST(Frames, CoresGoAlongWhereThereAreAnyAndMayBeMissing) {
  StartFrame start = {.arguments = {"p"}, .environment = {"A=b"}};
  const std::string without = start.Encode();
  EXPECT_THAT(StartFrame::Decode(without)->cores, IsEmpty());
  start.cores = {4, 5, 900};
  EXPECT_THAT(StartFrame::Decode(start.Encode())->cores, ElementsAre(4, 5, 900));
  for (size_t size = without.size() + 1; size < start.Encode().size(); ++size)
    EXPECT_FALSE(StartFrame::Decode(start.Encode().substr(0, size)).ok()) << size;
  EXPECT_FALSE(StartFrame::Decode(without + EncodeNumbers({0, 2})).ok());
  EXPECT_FALSE(StartFrame::Decode(without + EncodeNumbers({1, -1})).ok());
  EXPECT_FALSE(StartFrame::Decode(without + EncodeNumbers({1, int64_t{1} << 40})).ok());
  EXPECT_FALSE(StartFrame::Decode(without + EncodeNumbers({int64_t{1} << 60, 1})).ok());

  const HelloFrame hello = {.pid = 1, .port = 2222, .machine = "m", .cores = {0, 2, 1}};
  EXPECT_EQ(HelloFrame::Decode(hello.Encode())->machine, "m");
  EXPECT_THAT(HelloFrame::Decode(hello.Encode())->cores, ElementsAre(0, 2, 1));
  // What older keepers say.
  EXPECT_THAT(HelloFrame::Decode(EncodeNumbers({1, 2222}))->cores, IsEmpty());
  EXPECT_FALSE(HelloFrame::Decode(EncodeNumbers({1, 2222}) + "x").ok());
}

TEST(Frames, BadBytesGiveErrors) {
  KeeperFrameReader chatter(/*greeting=*/true);
  chatter.Add(std::string(kMaxNoise + 1, 'x'));
  EXPECT_FALSE(chatter.Next().ok());
  for (const std::string& bytes : {std::string("\x07\0\0\0\0", 5), std::string("\x13\xff\xff\xff\xff", 5)}) {
    KeeperFrameReader reader(/*greeting=*/false);
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
    const TrainingProgress p = ReadTrainingText(line);
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

}  // namespace
}  // namespace millrace::launch
