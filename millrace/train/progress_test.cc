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

TEST(ProgressTest, UnknownKeysArePassedOverAndNonsenseIsNamed) {
  EXPECT_EQ(ParseProgress("accuracy=0.9 step=3").value().step, 3);
  EXPECT_THAT(ParseProgress("step=three").status().message(),
              testing::HasSubstr("step is not a number in 'step=three'"));
  EXPECT_FALSE(ParseProgress("hello world").ok());
  EXPECT_FALSE(ParseProgress("").ok());
  EXPECT_FALSE(ParseProgress("=1").ok());
}

TEST(ProgressTest, ANewlineInAPhaseDoesNotMakeTwoLines) { EXPECT_EQ(FormatProgress({.phase = "a\nb"}), "phase=a b"); }

}  // namespace
}  // namespace millrace
