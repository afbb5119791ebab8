#include "millrace/estimator/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kCluster[] = R"({"chief": ["host0:2222"], "ps": ["host1:2222", "host2:2222"],
                                "worker": ["host3:2222", "host4:2222", "host5:2222"]})";

std::string TfConfig(absl::string_view type, absl::string_view index, absl::string_view cluster = kCluster) {
  return absl::StrCat(R"({"cluster": )", cluster, R"(, "task": {"type": ")", type, R"(", "index": )", index, "}}");
}

ClusterSpec GivenCluster() {
  return ClusterSpec::Of({{"chief", {"host0:2222"}},
                          {"ps", {"host1:2222", "host2:2222"}},
                          {"worker", {"host3:2222", "host4:2222", "host5:2222"}}})
      .value();
}

TEST(RunConfig, OfAWorker) {
  const RunConfig config = RunConfig::Parse(TfConfig("worker", "1")).value();
  EXPECT_EQ(config.master(), "host4:2222");
  EXPECT_EQ(config.target(), "grpc://host4:2222");
  EXPECT_EQ(config.task_id(), 1);
  EXPECT_EQ(config.num_ps_replicas(), 2);
  EXPECT_EQ(config.num_worker_replicas(), 4);
  EXPECT_EQ(config.task_type(), "worker");
  EXPECT_FALSE(config.is_chief());
  EXPECT_EQ(config.cluster_spec(), GivenCluster());
  EXPECT_EQ(config.worker_index(), 2);
  EXPECT_EQ(config.evaluation_master(), "");
  EXPECT_THAT(config.session_config().device_filters, ElementsAre("/job:ps", "/job:worker/task:1"));
  EXPECT_TRUE(config.session_config().allow_soft_placement);
}

TEST(RunConfig, OfTheChief) {
  const RunConfig config = RunConfig::Parse(TfConfig("chief", "0")).value();
  EXPECT_EQ(config.master(), "host0:2222");
  EXPECT_EQ(config.target(), "grpc://host0:2222");
  EXPECT_EQ(config.task_id(), 0);
  EXPECT_EQ(config.num_ps_replicas(), 2);
  EXPECT_EQ(config.num_worker_replicas(), 4);
  EXPECT_EQ(config.task_type(), "chief");
  EXPECT_TRUE(config.is_chief());
  EXPECT_EQ(config.cluster_spec(), GivenCluster());
  EXPECT_EQ(config.worker_index(), 0);
  EXPECT_THAT(config.session_config().device_filters, ElementsAre("/job:ps", "/job:chief"));
}

TEST(RunConfig, OfAParameterServer) {
  const RunConfig config = RunConfig::Parse(TfConfig("ps", "1")).value();
  EXPECT_EQ(config.master(), "host2:2222");
  EXPECT_FALSE(config.is_chief());
  EXPECT_EQ(config.num_worker_replicas(), 4);
  EXPECT_THAT(config.session_config().device_filters,
              ElementsAre("/job:ps", "/job:worker", "/job:chief", "/job:master"));
}

TEST(RunConfig, AnEvaluatorIsOutsideOfTheCluster) {
  for (const std::string& cluster : {std::string(kCluster), std::string("{}"),
                                     std::string(R"({"worker": ["host3:2222"], "evaluator": ["host6:2222"]})")}) {
    const RunConfig config = RunConfig::Parse(TfConfig("evaluator", "0", cluster)).value();
    EXPECT_EQ(config.master(), "");
    EXPECT_EQ(config.target(), "");
    EXPECT_EQ(config.evaluation_master(), "");
    EXPECT_EQ(config.task_id(), 0);
    EXPECT_EQ(config.num_ps_replicas(), 0);
    EXPECT_EQ(config.num_worker_replicas(), 0);
    EXPECT_EQ(config.task_type(), "evaluator");
    EXPECT_FALSE(config.is_chief());
    EXPECT_EQ(config.cluster_spec(), ClusterSpec());
    EXPECT_FALSE(config.global_id_in_cluster().has_value());
    EXPECT_THAT(config.session_config().device_filters, IsEmpty());
  }
}

void ExpectLocal(const RunConfig& config) {
  EXPECT_EQ(config.master(), "");
  EXPECT_EQ(config.target(), "");
  EXPECT_EQ(config.task_id(), 0);
  EXPECT_EQ(config.num_ps_replicas(), 0);
  EXPECT_EQ(config.num_worker_replicas(), 1);
  EXPECT_EQ(config.task_type(), "worker");
  EXPECT_TRUE(config.is_chief());
  EXPECT_EQ(config.cluster_spec(), ClusterSpec());
  EXPECT_EQ(config.global_id_in_cluster(), 0);
  EXPECT_EQ(config.environment(), "local");
  EXPECT_THAT(config.session_config().device_filters, IsEmpty());
}

TEST(RunConfig, WithoutTfConfigTheProcessIsLocalAndChief) {
  unsetenv("TF_CONFIG");
  ExpectLocal(RunConfig::FromEnvironment().value());
  ExpectLocal(RunConfig::Parse("{}").value());
  setenv("TF_CONFIG", TfConfig("worker", "1").c_str(), 1);
  EXPECT_EQ(RunConfig::FromEnvironment().value().master(), "host4:2222");
  ExpectLocal(RunConfig());
  unsetenv("TF_CONFIG");
}

TEST(RunConfig, AClusterWithoutAChiefTakesWorkerZero) {
  constexpr char kWorkers[] = R"({"ps": ["host1:2222"], "worker": ["host3:2222", "host4:2222"]})";
  const RunConfig first = RunConfig::Parse(TfConfig("worker", "0", kWorkers)).value();
  EXPECT_TRUE(first.is_chief());
  EXPECT_EQ(first.global_id_in_cluster(), 0);
  EXPECT_EQ(first.num_worker_replicas(), 2);
  EXPECT_FALSE(RunConfig::Parse(TfConfig("worker", "1", kWorkers)).value().is_chief());
}

TEST(RunConfig, EveryTaskOfAClusterHasAGlobalId) {
  const auto id = [](absl::string_view type, int index) {
    return RunConfig::Parse(TfConfig(type, absl::StrCat(index))).value().global_id_in_cluster().value();
  };
  EXPECT_EQ(id("chief", 0), 0);
  EXPECT_EQ(id("worker", 0), 1);
  EXPECT_EQ(id("worker", 2), 3);
  EXPECT_EQ(id("ps", 0), 4);
  EXPECT_EQ(id("ps", 1), 5);
}

TEST(RunConfig, TakesTheOtherMembersOfTfConfig) {
  const RunConfig config = RunConfig::Parse(R"({"environment": "google", "service": {"zone": "b"}, "model_dir": "run",
                           "session_master": "other:1", "eval_session_master": "grpc://third:1"})")
                               .value();
  EXPECT_EQ(config.environment(), "google");
  EXPECT_EQ(config.service().at("zone"), "b");
  EXPECT_EQ(config.model_dir(), "run");
  EXPECT_EQ(config.target(), "grpc://other:1");
  EXPECT_EQ(config.evaluation_master(), "grpc://third:1");
  EXPECT_EQ(config.evaluation_target(), "grpc://third:1");
}

TEST(RunConfig, KeepsTheOptions) {
  const RunConfig config =
      RunConfig::Parse(TfConfig("worker", "1"), {.model_dir = "run",
                                                 .tf_random_seed = 7,
                                                 .save_summary_steps = 10,
                                                 .save_checkpoints_steps = 20,
                                                 .keep_checkpoint_max = 3,
                                                 .log_step_count_steps = 30,
                                                 .session_config = SessionOptions{.intra_op_threads = 2}})
          .value();
  EXPECT_EQ(config.model_dir(), "run");
  EXPECT_EQ(config.options().tf_random_seed, 7);
  EXPECT_EQ(config.options().save_checkpoints_steps, 20);
  EXPECT_EQ(config.session_config().intra_op_threads, 2);
  EXPECT_THAT(config.session_config().device_filters, IsEmpty());
}

TEST(RunConfig, WhatIsWrongIsShown) {
  const auto error = [](const std::string& tf_config, RunConfigOptions options = {}) {
    const Status status = RunConfig::Parse(tf_config, std::move(options)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tf_config;
    return std::string(status.message());
  };
  EXPECT_THAT(error("{cluster: }"), HasSubstr("TF_CONFIG: '{cluster: }' is not JSON"));
  EXPECT_THAT(error(TfConfig("boss", "0")), HasSubstr("no job 'boss'"));
  EXPECT_THAT(error(TfConfig("boss", "0", "{}")), HasSubstr("task.type is \"boss\""));
  EXPECT_THAT(error(TfConfig("boss", "0", R"({"boss": ["a:1"], "worker": ["b:1"]})")),
              HasSubstr("task.type is \"boss\""));
  EXPECT_THAT(error(TfConfig("worker", "3")), HasSubstr("job 'worker' has no task 3; its tasks are: 0, 1, 2"));
  EXPECT_THAT(error(TfConfig("worker", "-1")), HasSubstr("task.index is -1"));
  EXPECT_THAT(error(TfConfig("worker", "\"one\"")), HasSubstr("task.index is \"one\""));
  EXPECT_THAT(error(TfConfig("worker", "0", R"({"ps": ["a:1"]})")), HasSubstr("no job 'worker'; its jobs are: ps"));
  EXPECT_THAT(error(absl::StrCat(R"({"cluster": )", kCluster, "}")), HasSubstr("task.type is missing"));
  EXPECT_THAT(error(TfConfig("ps", "0", R"({"ps": ["a:1"]})")), HasSubstr("no task that trains"));
  EXPECT_THAT(error(TfConfig("ps", "0", "{}")), HasSubstr("task is ps/0, but there is no cluster"));
  EXPECT_THAT(error(R"({"environment": ["local"]})"), HasSubstr("environment is [\"local\"]"));
  EXPECT_THAT(error(R"({"model_dir": "one"})", {.model_dir = "two"}), HasSubstr("model_dir is two, but one"));

  EXPECT_THAT(error("{}", {.save_checkpoints_steps = 1, .save_checkpoints_secs = absl::Seconds(1)}),
              HasSubstr("one of save_checkpoints_steps and save_checkpoints_secs"));
  EXPECT_THAT(error("{}", {.save_checkpoints_steps = -1}), HasSubstr("save_checkpoints_steps is -1"));
  EXPECT_THAT(error("{}", {.save_checkpoints_secs = absl::Seconds(-1)}), HasSubstr("save_checkpoints_secs is -1s"));
  EXPECT_THAT(error("{}", {.keep_checkpoint_max = -2}), HasSubstr("keep_checkpoint_max is -2"));
  EXPECT_THAT(error("{}", {.session_creation_timeout = absl::ZeroDuration()}),
              HasSubstr("session_creation_timeout is 0"));
}

}  // namespace
}  // namespace millrace
