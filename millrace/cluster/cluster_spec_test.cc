#include "millrace/cluster/cluster_spec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(absl::string_view spec) {
  const StatusOr<ClusterSpec> parsed = ClusterSpec::Parse(spec);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << spec;
  return std::string(parsed.status().message());
}

TEST(ClusterSpec, IsReadFromTensorFlowsFlag) {
  const ClusterSpec spec = ClusterSpec::Parse("ps|a:1;a:2, worker | [::1]:3 ").value();
  EXPECT_EQ(spec.ToString(), "ps|a:1;a:2,worker|[::1]:3");
  EXPECT_THAT(spec.tasks(), ElementsAre(TaskId{"ps", 0}, TaskId{"ps", 1}, TaskId{"worker", 0}));
  EXPECT_EQ(*spec.Address({"ps", 1}), "a:2");
  EXPECT_TRUE(spec.Has({"worker", 0}));
  EXPECT_FALSE(spec.Has({"worker", 1}));
  EXPECT_EQ(ClusterSpec::Parse(spec.ToString())->ToString(), spec.ToString());
}

TEST(ClusterSpec, QuotesWhatIsWrongWithIt) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("ps|a:1,worker"), HasSubstr("'worker'"));
  EXPECT_THAT(ErrorOf("ps|a:1|b:2"), HasSubstr("'ps|a:1|b:2'"));
  EXPECT_THAT(ErrorOf("ps|a:1,ps|b:1"), AllOf(HasSubstr("'ps'"), HasSubstr("twice")));
  EXPECT_THAT(ErrorOf("ps|a"), AllOf(HasSubstr("'a'"), HasSubstr("task 0 of job 'ps'")));
  EXPECT_THAT(ErrorOf("ps|a:1;b:port"), AllOf(HasSubstr("'b:port'"), HasSubstr("task 1")));
  EXPECT_THAT(ErrorOf("ps|a:70000"), HasSubstr("'70000'"));
  EXPECT_THAT(ErrorOf("ps|a:-1"), HasSubstr("'-1'"));
  EXPECT_THAT(ErrorOf("ps|grpc://a:1"), HasSubstr("'grpc://a:1'"));
  EXPECT_THAT(ErrorOf("ps|:1"), HasSubstr("':1'"));
  EXPECT_THAT(ErrorOf("ps|::1:5"), AllOf(HasSubstr("'::1:5'"), HasSubstr("brackets")));
  EXPECT_THAT(ErrorOf("ps|a:1;"), HasSubstr("task 1 of job 'ps'"));
  EXPECT_THAT(ErrorOf("p s|a:1"), HasSubstr("'p s'"));
  EXPECT_THAT(ErrorOf("|a:1"), HasSubstr("no name"));
  EXPECT_THAT(ErrorOf("ps|a:1,worker|a:1"), AllOf(HasSubstr("/job:ps"), HasSubstr("/job:worker"), HasSubstr("a:1")));
}

TEST(ClusterSpec, MayHaveHoles) {
  const ClusterSpec spec = ClusterSpec::OfTasks({{"worker", {{1, "a:1"}, {7, "b:1"}}}}).value();
  EXPECT_THAT(spec.tasks(), ElementsAre(TaskId{"worker", 1}, TaskId{"worker", 7}));
  const StatusOr<std::string> missing = spec.Address({"worker", 0});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("no task 0; its tasks are: 1, 7"));
  EXPECT_THAT(std::string(spec.Address({"ps", 0}).status().message()), HasSubstr("no job 'ps'; its jobs are: worker"));
  EXPECT_FALSE(ClusterSpec::OfTasks({{"worker", {{-1, "a:1"}}}}).ok());
  EXPECT_FALSE(ClusterSpec::OfTasks({{"worker", {}}}).ok());
  EXPECT_FALSE(ClusterSpec::OfTasks({}).ok());
}

TEST(ClusterSpec, MayHaveHolesOnTheCommandLine) {
  const ClusterSpec spec = ClusterSpec::Parse("ps|a:1,worker|;b:1;;b:2").value();
  EXPECT_THAT(spec.tasks(), ElementsAre(TaskId{"ps", 0}, TaskId{"worker", 1}, TaskId{"worker", 3}));
  EXPECT_EQ(spec.ToString(), "ps|a:1,worker|;b:1;;b:2");
  EXPECT_THAT(ErrorOf("worker|;"), HasSubstr("task 1 of job 'worker'"));
}

TEST(ClusterSpec, SurvivesAClusterDef) {
  const ClusterSpec spec = ClusterSpec::OfTasks({{"ps", {{0, "a:1"}}}, {"worker", {{1, "a:2"}, {7, "b:1"}}}}).value();
  const pb::ClusterDef def = spec.ToDef();
  EXPECT_EQ(def.job_size(), 2);
  EXPECT_EQ(ClusterSpec::FromDef(def)->jobs(), spec.jobs());
  pb::ClusterDef twice = def;
  *twice.add_job() = def.job(0);
  EXPECT_THAT(std::string(ClusterSpec::FromDef(twice).status().message()), HasSubstr("'ps' twice"));
  pb::ClusterDef bad = def;
  (*bad.mutable_job(0)->mutable_tasks())[0] = "nowhere";
  EXPECT_THAT(std::string(ClusterSpec::FromDef(bad).status().message()), HasSubstr("'nowhere'"));
}

TEST(ClusterSpec, TakesThePortThatWasChosen) {
  ClusterSpec spec = ClusterSpec::Parse("ps|localhost:0;localhost:0").value();  // both will differ
  spec.SetAddress({"ps", 1}, "localhost:5");
  EXPECT_EQ(spec.ToString(), "ps|localhost:0;localhost:5");
}

TEST(TaskId, IsTheTaskOfADevice) {
  EXPECT_EQ(TaskId::Of("/job:ps/replica:0/task:3/device:CPU:0")->name(), "/job:ps/replica:0/task:3");
  EXPECT_EQ(TaskId::Of("/job:ps").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TaskId::Of("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ClusterSpec, EqualJobsTasksAndAddressesAreEqualClusters) {
  const ClusterSpec a = ClusterSpec::Of({{"ps", {"a:1"}}, {"worker", {"b:1", "b:2"}}}).value();
  EXPECT_EQ(a, ClusterSpec::Parse("worker|b:1;b:2,ps|a:1").value());
  EXPECT_NE(a, ClusterSpec::Parse("worker|b:2;b:1,ps|a:1").value());
  EXPECT_NE(a, ClusterSpec::Parse("worker|b:1,ps|a:1").value());
  EXPECT_NE(a, ClusterSpec());
}

}  // namespace
}  // namespace millrace
