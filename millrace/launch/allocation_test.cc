#include "millrace/launch/allocation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/launch/scheduler_step.h"

namespace millrace::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Environment kBatch = {{"SLURM_JOB_ID", "7"},
                            {"SLURM_JOB_NODELIST", "node[1-2]"},
                            {"SLURM_TASKS_PER_NODE", "3,1"},
                            {"SLURM_PROCID", "0"},
                            {"SLURMD_NODENAME", "node1"}};

StatusOr<std::optional<Allocation>> Find(const Environment& environment) {
  return FindAllocation({.environment = environment, .host_name = "login"});
}

TEST(Allocation, NodesAndSlotsAreThoseOfTheBatchJob) {
  const Allocation allocation = Find(kBatch).value().value();
  EXPECT_EQ(allocation.name, "Slurm job 7");
  EXPECT_EQ(allocation.here, "node1");
  ASSERT_EQ(allocation.hosts.size(), 2);
  EXPECT_EQ(allocation.hosts[0].name, "node1");
  EXPECT_EQ(allocation.hosts[0].slots, 3);
  EXPECT_EQ(allocation.hosts[1].slots, 1);
}

TEST(Allocation, TheShellOfSallocIsReachedByItsHostsName) {
  Environment salloc = kBatch;
  salloc.erase("SLURMD_NODENAME");
  EXPECT_EQ(Find(salloc).value()->here, "login");
}

TEST(Allocation, OutsideAndWithinAStepThereIsNone) {
  EXPECT_FALSE(Find({}).value().has_value());
  Environment step = kBatch;
  step["SLURM_STEP_ID"] = "0";
  EXPECT_FALSE(Find(step).value().has_value());
}

TEST(Allocation, WhatIsWrongIsNamed) {
  const auto with = [](const char* name, const char* value) {
    Environment environment = kBatch;
    environment[name] = value;
    return std::string(Find(environment).status().message());
  };
  EXPECT_THAT(with("SLURM_JOB_NODELIST", "n["), HasSubstr("SLURM_JOB_NODELIST: "));
  EXPECT_THAT(with("SLURM_TASKS_PER_NODE", "x"), HasSubstr("SLURM_TASKS_PER_NODE: "));
  EXPECT_THAT(with("SLURM_TASKS_PER_NODE", "1"), HasSubstr("has 2 nodes"));
  EXPECT_THAT(with("SLURM_HET_SIZE", "2"), HasSubstr("heterogeneous"));
}

TEST(SchedulerStep, TasksRunOnTheirNodesInOrder) {
  const std::vector<std::string> words = StepCommand({"srun"}, "/bin/millrace", {0, 2, 3}, {"a", "a", "b"});
  EXPECT_EQ(words[0], "srun");
  EXPECT_THAT(words, Contains("--ntasks=3"));
  EXPECT_THAT(words, Contains("--nodes=2"));
  EXPECT_THAT(words, Contains("--nodelist=a,a,b"));
  EXPECT_THAT(std::vector<std::string>(words.end() - 4, words.end()),
              ElementsAre("/bin/millrace", "task-keeper", "--tasks", "0,2,3"));
}

TEST(SchedulerStep, TheMeetingIsReadAsItWasWritten) {
  const MeetingPoint point = {.label = "Slurm job 7, launch x", .hosts = {"node1"}, .ports = {12345, 12346}};
  const StepMeeting read = DecodeMeeting(EncodeMeeting(point, 3, "1 ps + 2 worker")).value();
  EXPECT_EQ(read.point.label, point.label);
  EXPECT_EQ(read.point.hosts, point.hosts);
  EXPECT_EQ(read.point.ports, point.ports);
  EXPECT_EQ(read.size, 3);
  EXPECT_EQ(read.jobs, "1 ps + 2 worker");
  for (const char* bad : {"", "[]", "{}", R"({"label":1,"hosts":[],"ports":[],"size":1,"jobs":""})",
                          R"({"label":"","hosts":[1],"ports":[],"size":1,"jobs":""})"})
    EXPECT_FALSE(DecodeMeeting(bad).ok()) << bad;
}

}  // namespace
}  // namespace millrace::launch
