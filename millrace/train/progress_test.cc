#include "millrace/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(ProgressTest, WhatIsWrittenIsRead) {
  TrainingProgress told = TrainingProgress::WaitingFor("worker/0 to initialise w=1, b");
  told.step = 812;
  told.loss = 0.25;
  const std::string line = FormatProgress(told);
  EXPECT_EQ(line, "step=812 loss=0.25 phase=waiting for worker/0 to initialise w=1, b");
  const TrainingProgress read = ParseProgress(line).value();
  EXPECT_EQ(read.step, 812);
  EXPECT_EQ(read.loss, 0.25);
  EXPECT_EQ(read.phase, told.phase);
  EXPECT_TRUE(read.waits);
  EXPECT_FALSE(ParseProgress("phase=awaiting orders").value().waits);
}

TEST(ProgressTest, ACheckpointIsReportedByItsStep) {
  EXPECT_EQ(FormatProgress({.saved = 800}), "saved=800");
  EXPECT_EQ(ParseProgress("saved=800").value().saved, 800);
  EXPECT_EQ(ParseProgress("saved=800").value().step, std::nullopt);
  EXPECT_THAT(ParseProgress("saved=model.ckpt").status().message(), testing::HasSubstr("saved is not a number"));
}

TEST(ProgressTest, UnknownKeysArePassedOverAndNonsenseIsNamed) {
  EXPECT_EQ(ParseProgress("accuracy=0.9 step=3").value().step, 3);
  EXPECT_THAT(ParseProgress("step=three").status().message(),
              testing::HasSubstr("step is not a number in 'step=three'"));
  EXPECT_FALSE(ParseProgress("hello world").ok());
  EXPECT_FALSE(ParseProgress("").ok());
  EXPECT_FALSE(ParseProgress("=1").ok());
}

TEST(ProgressTest, WordsAboutANoticeAreReadBack) {
  const std::string saved =
      FormatProgress({.step = 812, .notice = "saved", .signal = 15, .checkpoint = "my model.ckpt-812"});
  EXPECT_EQ(saved, "step=812 notice=saved signal=15 checkpoint=my_model.ckpt-812");
  const TrainingProgress read = ParseProgress(saved).value();
  EXPECT_EQ(read.notice, "saved");
  EXPECT_EQ(read.signal, 15);
  EXPECT_EQ(read.checkpoint, "my_model.ckpt-812");
  const std::string failed = FormatProgress({.notice = "failed", .error = "no space\nleft=0"});
  EXPECT_EQ(failed, "notice=failed error=no space left=0");
  EXPECT_EQ(ParseProgress(failed).value().error, "no space left=0");
  EXPECT_LT(FormatProgress({.notice = "failed", .error = std::string(10000, 'x')}).size(), 4096);
  EXPECT_FALSE(ParseProgress("notice=given signal=TERM").ok());
}

TEST(ProgressTest, ANewlineInAPhaseDoesNotMakeTwoLines) { EXPECT_EQ(FormatProgress({.phase = "a\nb"}), "phase=a b"); }

}  // namespace
}  // namespace millrace
