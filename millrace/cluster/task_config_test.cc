#include "millrace/cluster/task_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr char kCluster[] = R"("cluster": {"ps": ["a:1", "a:2"], "worker": ["b:1", "b:2"]})";

TEST(TaskConfigTest, ReadsClusterAndTask) {
  const TaskConfig config =
      TaskConfig::Parse(
          absl::StrCat("{", kCluster, R"(, "task": {"type": "worker", "index": 1}, "environment": "cloud"})"))
          .value();
  EXPECT_EQ(config.cluster.ToString(), "ps|a:1;a:2,worker|b:1;b:2");
  EXPECT_EQ(config.task, (TaskId{"worker", 1}));
  EXPECT_FALSE(config.is_chief());
  EXPECT_EQ(config.num_ps(), 2);
  EXPECT_EQ(config.num_workers(), 2);
  EXPECT_EQ(config.worker_index(), 1);
}

TEST(TaskConfigTest, TheFirstWorkerIsTheChiefUnlessThereIsAnother) {
  const auto chief = [](absl::string_view cluster, absl::string_view type) {
    return TaskConfig::Parse(
               absl::StrCat(R"({"cluster": )", cluster, R"(, "task": {"type": ")", type, R"(", "index": 0}})"))
        .value();
  };
  EXPECT_TRUE(chief(R"({"ps": ["a:1"], "worker": ["b:1"]})", "worker").is_chief());
  EXPECT_FALSE(chief(R"({"ps": ["a:1"], "worker": ["b:1"]})", "ps").is_chief());
  for (const char* job : {"chief", "master"}) {
    const std::string cluster = absl::StrCat(R"({")", job, R"(": ["c:1"], "worker": ["b:1"]})");
    EXPECT_TRUE(chief(cluster, job).is_chief());
    EXPECT_EQ(chief(cluster, job).worker_index(), 0);
    EXPECT_FALSE(chief(cluster, "worker").is_chief());
    EXPECT_EQ(chief(cluster, "worker").worker_index(), 1);
    EXPECT_EQ(chief(cluster, "worker").num_workers(), 2);
  }
}

TEST(TaskConfigTest, AnEvaluatorMayBeOutsideOfTheCluster) {
  const TaskConfig config =
      TaskConfig::Parse(absl::StrCat("{", kCluster, R"(, "task": {"type": "evaluator", "index": 0}})")).value();
  EXPECT_TRUE(config.is_evaluator());
  EXPECT_FALSE(config.is_chief());
}

TEST(TaskConfigTest, WithoutAClusterAProgramRunsAlone) {
  for (const char* text : {"{}", R"({"cluster": {}})", R"({"task": {"type": "worker", "index": 0}})",
                           R"({"cluster": null, "task": null})"}) {
    const TaskConfig config = TaskConfig::Parse(text).value();
    EXPECT_TRUE(config.cluster.jobs().empty()) << text;
    EXPECT_TRUE(config.is_chief()) << text;
    EXPECT_EQ(config.num_workers(), 1) << text;
  }
}

TEST(TaskConfigTest, TasksMayBeAnObjectAndNumbersMayBeText) {
  const TaskConfig config =
      TaskConfig::Parse(
          R"({"cluster": {"worker": {"0": "b:1", "3": "b:4"}}, "task": {"type": "worker", "index": "3"}})")
          .value();
  EXPECT_EQ(config.task.index, 3);
  EXPECT_EQ(config.cluster.Address(config.task).value(), "b:4");
}

TEST(TaskConfigTest, ReadsWhatEstimatorsUse) {
  const TaskConfig config =
      TaskConfig::Parse(R"({"environment": "google", "service": {"zone": "b", "cores": 8}, "model_dir": "run",
                            "session_master": "grpc://a:1", "eval_session_master": null, "other": [1]})")
          .value();
  EXPECT_EQ(config.environment, "google");
  EXPECT_EQ(config.service, (std::map<std::string, std::string>{{"zone", "b"}, {"cores", "8"}}));
  EXPECT_EQ(config.model_dir, "run");
  EXPECT_EQ(config.session_master, "grpc://a:1");
  EXPECT_EQ(config.eval_session_master, "");
}

TEST(TaskConfigTest, WhatIsWrongIsNamed) {
  const auto error = [](const std::string& text) {
    const Status status = TaskConfig::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("TF_CONFIG: "));
    return std::string(status.message());
  };
  const auto task = [](const std::string& task) { return absl::StrCat("{", kCluster, R"(, "task": )", task, "}"); };
  EXPECT_THAT(error("{cluster: }"), HasSubstr("'{cluster: }' is not JSON"));
  EXPECT_THAT(error(""), HasSubstr("is not JSON"));
  EXPECT_THAT(error(std::string(100000, '[') + std::string(100000, ']')), HasSubstr("nested more than 16 deep"));
  EXPECT_THAT(error("[1]"), HasSubstr("[1] is not an object"));
  EXPECT_THAT(error(R"({"cluster": ["a:1"]})"), HasSubstr("cluster is [\"a:1\"], not an object of jobs"));
  EXPECT_THAT(error(R"({"cluster": {"ps": "a:1"}})"), HasSubstr("cluster.ps is \"a:1\", not a list"));
  EXPECT_THAT(error(R"({"cluster": {"ps": []}})"), HasSubstr("cluster.ps has no tasks"));
  EXPECT_THAT(error(R"({"cluster": {"ps": [7]}})"), HasSubstr("cluster.ps[0] is 7, not an address"));
  EXPECT_THAT(error(R"({"cluster": {"ps": ["nowhere"]}, "task": {"type": "ps", "index": 0}})"), HasSubstr("nowhere"));
  EXPECT_THAT(error(R"({"cluster": {"ps": {"x": "a:1"}}})"), HasSubstr("a key of cluster.ps is \"x\""));
  EXPECT_THAT(error(absl::StrCat("{", kCluster, "}")), HasSubstr("task.type is missing"));
  EXPECT_THAT(error(task("7")), HasSubstr("task is 7"));
  EXPECT_THAT(error(task(R"({"type": 7, "index": 0})")), HasSubstr("task.type is 7"));
  EXPECT_THAT(error(task(R"({"type": "worker"})")), HasSubstr("task.index is missing"));
  EXPECT_THAT(error(task(R"({"type": "worker", "index": -1})")), HasSubstr("task.index is -1"));
  EXPECT_THAT(error(task(R"({"type": "worker", "index": 1.5})")), HasSubstr("task.index is 1.5"));
  EXPECT_THAT(error(task(R"({"type": "worker", "index": 18446744073709551615})")),
              HasSubstr("not the number of a task"));
  EXPECT_THAT(error(task(R"({"type": "worker", "index": 2})")), HasSubstr("task 2"));
  EXPECT_THAT(error(task(R"({"type": "boss", "index": 0})")), HasSubstr("'boss'"));
  EXPECT_THAT(error(R"({"task": {"index": 1}})"), HasSubstr("there is no cluster"));
  EXPECT_THAT(error(R"({"environment": 7})"), HasSubstr("environment is 7, not a string"));
  EXPECT_THAT(error(R"({"service": "b"})"), HasSubstr("service is \"b\", not an object"));
  EXPECT_THAT(error(R"({"cluster": {"chief": ["a:1", "a:2"]}, "task": {"type": "chief", "index": 0}})"),
              HasSubstr("only one"));
}

TEST(TaskConfigTest, ComesFromTheEnvironment) {
  unsetenv("TF_CONFIG");
  EXPECT_FALSE(TaskConfig::FromEnvironment().value().has_value());
  setenv("TF_CONFIG", R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})", 1);
  EXPECT_TRUE(TaskConfig::FromEnvironment().value()->is_ps());
  setenv("TF_CONFIG", "{", 1);
  EXPECT_FALSE(TaskConfig::FromEnvironment().ok());
  unsetenv("TF_CONFIG");
}

}  // namespace
}  // namespace millrace
