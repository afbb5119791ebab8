#include "millrace/launch/job_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/launch/job_events.h"
#include "millrace/launch/job_request.h"
#include "millrace/launch/output_tail.h"

namespace millrace::launch {
namespace {

using testing::HasSubstr;

TEST(JobReportTest, WhatIsWrittenIsRead) {
  JobReport told = {.pid = 7,
                    .command = "./train",
                    .state = RunState::kFailed,
                    .seconds = 12.5,
                    .verdict = "worker/0 failed",
                    .exit_code = 3,
                    .hang = "ps/0"};
  told.tasks = {{.task = "worker/0", .state = "failed", .step = 812, .loss = 0.25}};
  told.checkpoint = JobReport::Checkpoint{.task = "worker/0", .step = 800, .age_seconds = 3};
  told.events = {{.number = 4, .seconds = 11, .kind = "fail", .task = "worker/0", .text = "exited with code 3"}};
  told.outputs = {{"worker/0", "step 812\n\033[31mlast words\033[0m\n"}};
  const JobReport read = JobReport::FromJson(told.ToJson()).value();
  EXPECT_EQ(read.verdict, told.verdict);
  EXPECT_EQ(read.exit_code, 3);
  EXPECT_EQ(read.checkpoint->step, 800);
  EXPECT_EQ(read.events[0].kind, "fail");
  EXPECT_EQ(read.events[0].number, 4);
  EXPECT_EQ(read.outputs, told.outputs);
  EXPECT_THAT(read.ToText(), HasSubstr("checkpoint of step 800 by worker/0, 3 s ago"));
}

TEST(JobReportTest, ALossThatIsNotFiniteSurvives) {
  for (const double loss : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e308}) {
    JobReport told;
    told.tasks = {{.task = "worker/0", .loss = loss}};
    const std::optional<double> read = JobReport::FromJson(told.ToJson()).value().tasks[0].loss;
    ASSERT_TRUE(read.has_value());
    EXPECT_TRUE(*read == loss || (std::isnan(*read) && std::isnan(loss))) << loss;
  }
}

TEST(JobReportTest, StrangeReportsAreReadAsFarAsTheyMakeSense) {
  EXPECT_FALSE(JobReport::FromJson("{").ok());
  EXPECT_FALSE(JobReport::FromJson("{\"tasks\": [1]}").ok());
  const JobReport report =
      JobReport::FromJson(R"({"tasks": [], "events": [1, {"kind": 7}], "checkpoint": [], "outputs": {"a": 1}})")
          .value();
  EXPECT_EQ(report.events.size(), 1);
  EXPECT_FALSE(report.checkpoint.has_value());
  EXPECT_TRUE(report.outputs.empty());
}

TEST(JobEventsTest, TheNewestAreKept) {
  JobEvents events;
  for (int i = 0; i < 2000; ++i) events.Add(i, "save", "worker/0", std::string(1000, 'x'));
  EXPECT_EQ(events.After(0).size(), JobEvents::kMost);
  EXPECT_EQ(events.After(1998).size(), 2);
  EXPECT_EQ(events.After(1999)[0].number, 2000);
  EXPECT_TRUE(events.After(2000).empty());
  EXPECT_EQ(events.After(1999)[0].text.size(), JobEvents::kMaxText);
}

TEST(OutputTailTest, TheLastWholeLinesAreKept) {
  OutputTail tail(100);
  for (int i = 0; i < 1000; ++i) tail.Add(absl::StrCat("line ", i));
  const std::string text = tail.Text();
  EXPECT_LE(text.size(), 100);
  EXPECT_THAT(text, testing::EndsWith("line 998\nline 999\n"));
  EXPECT_THAT(text, testing::StartsWith("line "));
  EXPECT_EQ(tail.Text(10), "line 999\n");
}

TEST(OutputTailTest, OfALongLineTheEndIsKept) {
  OutputTail tail(100);
  tail.Add(std::string(5000, 'a') + "end");
  EXPECT_EQ(tail.Text().size(), 100);
  EXPECT_THAT(tail.Text(), testing::EndsWith("aend\n"));
}

TEST(JobRequestTest, WhatIsAskedIsRead) {
  for (const JobRequest& asked : {JobRequest{.events_after = 17}, JobRequest{.kind = JobRequest::Kind::kEnd},
                                  JobRequest{.kind = JobRequest::Kind::kOutput, .task = "worker/0"}}) {
    std::string line = asked.ToLine();
    line.pop_back();
    const JobRequest read = JobRequest::Parse(line).value();
    EXPECT_EQ(read.kind, asked.kind);
    EXPECT_EQ(read.events_after, asked.events_after);
    EXPECT_EQ(read.task, asked.task);
  }
  for (const char* wrong : {"", "report", "report x", "output ", "stop", "end "})
    EXPECT_FALSE(JobRequest::Parse(wrong).ok());
}

}  // namespace
}  // namespace millrace::launch
