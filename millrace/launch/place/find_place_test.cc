#include "millrace/launch/place/find_place.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A task of `srun -N2 -n3`, as Slurm 22 sets it.
Environment SlurmStep(int rank) {
  const bool second = rank == 2;
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", absl::StrCat(rank)},
          {"SLURM_LOCALID", second ? "0" : absl::StrCat(rank)},
          {"SLURM_NODEID", second ? "1" : "0"},
          {"SLURMD_NODENAME", second ? "node2" : "node1"},
          {"SLURM_NTASKS", "3"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_NODELIST", "node[1-2]"},
          {"SLURM_STEP_TASKS_PER_NODE", "2,1"}};
}

Environment OpenMpi(int rank, int size) {
  return {{"OMPI_COMM_WORLD_RANK", absl::StrCat(rank)},
          {"OMPI_COMM_WORLD_SIZE", absl::StrCat(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", absl::StrCat(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", absl::StrCat(size)},
          {"PMIX_NAMESPACE", "1141374977"},
          {"PMIX_RANK", absl::StrCat(rank)}};
}

const PlaceRequest kOnePs = {.groups = {{.name = "ps", .count = 1}}, .rest_are_workers = true};

StatusOr<Place> Find(const Environment& environment, const PlaceRequest& request = kOnePs,
                     const std::string& host = "here") {
  return FindPlace({.environment = environment, .host_name = host, .parent = 42}, request);
}

TEST(FindPlace, AStepOfSlurmsGivesRanksInTheOrderOfJobs) {
  const std::vector<std::string> expected = {"ps/0", "worker/0", "worker/1"};
  for (int rank = 0; rank < 3; ++rank) {
    const Place place = Find(SlurmStep(rank)).value();
    EXPECT_EQ(place.task.ToString(), expected[rank]);
    EXPECT_EQ(place.source, "Slurm");
    EXPECT_EQ(place.standing.scheduler, "Slurm step 7.0");
    EXPECT_EQ(place.standing.address, rank == 2 ? "node2" : "node1");
    EXPECT_EQ(place.standing.local_rank, rank == 2 ? 0 : rank);
    EXPECT_EQ(place.standing.local_size, rank == 2 ? 1 : 2);
    EXPECT_EQ(place.standing.first_hosts[0], "node1");
    EXPECT_FALSE(place.cluster.has_value());
  }
}

TEST(FindPlace, ARequeuedJobIsAnotherMeeting) {
  Environment again = SlurmStep(0);
  again["SLURM_RESTART_COUNT"] = "1";
  EXPECT_EQ(Find(again).value().standing.scheduler, "Slurm step 7.0, restart 1");
}

TEST(FindPlace, AStepOnOneNodeUsesLoopback) {
  Environment step = SlurmStep(0);
  step["SLURM_STEP_NODELIST"] = "node1";
  step["SLURM_STEP_TASKS_PER_NODE"] = "3";
  EXPECT_EQ(Find(step).value().standing.address, "localhost");
}

TEST(FindPlace, ABatchScriptIsNoTask) {
  for (const char* step : {"", "4294967291", "4294967290"}) {
    Environment batch = SlurmStep(0);
    batch.erase("SLURM_STEP_ID");
    if (*step != 0) batch["SLURM_STEP_ID"] = step;
    EXPECT_THAT(Find(batch).status().message(), HasSubstr("this is Slurm job 7, but no step of it")) << step;
  }
}

TEST(FindPlace, MpirunWithinAnAllocationIsTheInnermost) {
  Environment both = SlurmStep(1);  // Open MPI starts its daemons with srun
  both.merge(OpenMpi(2, 3));
  both["SLURM_JOB_NODELIST"] = "node[1-2]";
  both["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  both["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  const Place place = Find(both).value();
  EXPECT_EQ(place.source, "Open MPI");
  EXPECT_EQ(place.task.ToString(), "worker/1");
  EXPECT_THAT(place.standing.first_hosts, ElementsAre("node1", "node2"));
}

TEST(FindPlace, SlurmsOwnPmiIsSlurm) {
  Environment pmi2 = SlurmStep(1);
  pmi2["PMI_RANK"] = "1";
  pmi2["PMI_SIZE"] = "3";
  EXPECT_EQ(Find(pmi2).value().source, "Slurm");
  Environment pmix = SlurmStep(1);
  pmix["PMIX_RANK"] = "1";
  pmix["PMIX_NAMESPACE"] = "slurm.pmix.7.0";
  EXPECT_EQ(Find(pmix).value().source, "Slurm");
  // Hydra's proxies are started with srun, too.
  Environment hydra = SlurmStep(1);
  hydra.merge(Environment{{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}});
  const Place place = Find(hydra).value();
  EXPECT_EQ(place.source, "Hydra");
  EXPECT_EQ(place.task.ToString(), "worker/4");
}

TEST(FindPlace, OpenMpiOnOneHostUsesLoopback) {
  const Place place = Find(OpenMpi(0, 3)).value();
  EXPECT_EQ(place.task.ToString(), "ps/0");
  EXPECT_EQ(place.standing.address, "localhost");
}

TEST(FindPlace, OpenMpiSaysWhereMpirunIs) {
  Environment mpi = OpenMpi(2, 3);
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  mpi["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  mpi["OMPI_MCA_orte_hnp_uri"] = "1141374976.0;tcp://192.0.2.2,10.0.0.7:35711;tcp6://[fd00::2]:39835";
  EXPECT_THAT(Find(mpi).value().standing.first_hosts, ElementsAre("192.0.2.2", "10.0.0.7"));
  EXPECT_EQ(Find(mpi).value().standing.address, "here");
}

TEST(FindPlace, HydraAndPmixAreKnown) {
  const Place hydra =
      Find({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}).value();
  EXPECT_EQ(hydra.task.ToString(), "worker/0");
  EXPECT_EQ(hydra.standing.scheduler, "Hydra job of process 42");
  const Environment pmix = {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-7"}};
  EXPECT_THAT(Find(pmix).status().message(), HasSubstr("give --workers N as well"));
  const PlaceRequest all = {.groups = {{.name = "ps", .count = 1}, {.name = "worker", .count = 2}}};
  EXPECT_EQ(Find(pmix, all).value().task.ToString(), "worker/0");
}

TEST(FindPlace, PodsOfOneSetAreRanks) {
  const PlaceRequest request = {.groups = {{.name = "ps", .count = 1}, {.name = "worker", .count = 2}}};
  const Place place = Find({{"JOB_COMPLETION_INDEX", "2"}}, request, "train-2.train.default.svc.cluster.local").value();
  EXPECT_EQ(place.task.ToString(), "worker/1");
  EXPECT_THAT(place.cluster->at("ps"), ElementsAre("train-0.train.default.svc.cluster.local:2222"));
  EXPECT_THAT(place.cluster->at("worker"), ElementsAre("train-1.train.default.svc.cluster.local:2222",
                                                       "train-2.train.default.svc.cluster.local:2222"));
}

TEST(FindPlace, PodsOfASetForEachJobAreItsTasks) {
  const PlaceRequest request = {.groups = {{.name = "ps", .count = 1}, {.name = "worker", .count = 2}}, .port = 3333};
  const Environment pod = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};
  const Place place = Find(pod, request, "train-worker-1.train.ns.svc").value();
  EXPECT_EQ(place.task.ToString(), "worker/1");
  EXPECT_THAT(place.cluster->at("ps"), ElementsAre("train-ps-0.train.ns.svc:3333"));
  EXPECT_THAT(place.cluster->at("worker"),
              ElementsAre("train-worker-0.train.ns.svc:3333", "train-worker-1.train.ns.svc:3333"));
  // A JobSet's names have the index of the Job as well.
  const Place jobset = Find(pod, request, "train-worker-0-1.train").value();
  EXPECT_EQ(jobset.task.ToString(), "worker/1");
  EXPECT_THAT(jobset.cluster->at("ps"), ElementsAre("train-ps-0-0.train:3333"));
}

TEST(FindPlace, WhatIsWrongWithAPodIsSaid) {
  const PlaceRequest request = {.groups = {{.name = "ps", .count = 1}, {.name = "worker", .count = 2}}};
  const Environment pod = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};
  const auto why = [&](const Environment& environment, const std::string& host, const PlaceRequest& asked) {
    return std::string(Find(environment, asked, host).status().message());
  };
  EXPECT_THAT(why(pod, "train-abcde.x", request), HasSubstr("ends with no index"));
  EXPECT_THAT(why(pod, "train-1", request), HasSubstr("headless Service"));
  EXPECT_THAT(why(pod, "train-3.train", request), HasSubstr("has index 3, but there are 3 tasks"));
  EXPECT_THAT(why(pod, "train-ps-1.train", request), HasSubstr("has index 1, but there are 1 tasks of job ps"));
  EXPECT_THAT(why({{"JOB_COMPLETION_INDEX", "1"}}, "train-2.train", request), HasSubstr("JOB_COMPLETION_INDEX is 1"));
  EXPECT_THAT(why(pod, "train-1.train", kOnePs), HasSubstr("give --workers N as well"));
}

constexpr char kConfig[] =
    R"({"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}})";

TEST(FindPlace, TfConfigIsCheckedAndKept) {
  const Place place = Find({{"TF_CONFIG", kConfig}}).value();
  EXPECT_EQ(place.source, "TF_CONFIG");
  EXPECT_EQ(place.task.ToString(), "worker/1");
  EXPECT_THAT(place.cluster->at("worker"), ElementsAre("b:1", "c:1"));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Find({{"TF_CONFIG", R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 0}})"}}).status()));
}

TEST(FindPlace, SourcesThatContradictAreNamed) {
  const PlaceRequest two = {.groups = {{.name = "ps", .count = 2}}, .rest_are_workers = true};
  EXPECT_THAT(Find({{"TF_CONFIG", kConfig}}, two).status().message(),
              HasSubstr("TF_CONFIG has 1 tasks of job ps, but 2 were asked for"));
  Environment both = SlurmStep(0);
  both["SLURM_STEP_NUM_TASKS"] = "2";
  both["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)";
  both["TF_CONFIG"] = kConfig;
  EXPECT_THAT(Find(both).status().message(), HasSubstr("TF_CONFIG names 3 tasks, but Slurm step 7.0 has 2"));
}

TEST(FindPlace, FlagsTakePrecedence) {
  PlaceRequest request = kOnePs;
  request.rank = 1;
  EXPECT_THAT(Find(SlurmStep(0), request).status().message(), HasSubstr("give both --rank and --size"));
  request.size = 2;
  const Place place = Find(SlurmStep(0), request).value();
  EXPECT_EQ(place.source, "flags");
  EXPECT_EQ(place.task.ToString(), "worker/0");
  EXPECT_THAT(place.Explain(), testing::StartsWith("source: flags\n  --rank 1\n"));
  request.size = 3;
  request.rest_are_workers = false;
  EXPECT_THAT(Find({}, request).status().message(), HasSubstr("1 ps is 1 task, but --size is 3: start fewer"));
  request.rank = 3;
  EXPECT_THAT(Find({}, request).status().message(), HasSubstr("this is rank 3 of 3"));
}

TEST(FindPlace, FewerOrMoreTasksThanAskedForAreAnError) {
  PlaceRequest request = {.groups = {{.name = "ps", .count = 1}, {.name = "worker", .count = 3}}};
  EXPECT_THAT(Find(SlurmStep(0), request).status().message(),
              HasSubstr("1 ps + 3 worker are 4 tasks, but Slurm step 7.0 has 3: start more"));
  request.groups[1].count = 1;
  EXPECT_THAT(Find(SlurmStep(0), request).status().message(), HasSubstr("start fewer, or ask for more"));
  request = {.groups = {{.name = "ps", .count = 4}}, .rest_are_workers = true};
  EXPECT_THAT(Find(SlurmStep(0), request).status().message(), HasSubstr("4 ps are 4 tasks"));
}

TEST(FindPlace, AVariableThatIsWrongIsNamed) {
  const auto with = [](const char* name, const char* value) {
    Environment step = SlurmStep(0);
    step[name] = value;
    return std::string(Find(step).status().message());
  };
  EXPECT_THAT(with("SLURM_PROCID", "x"), HasSubstr("SLURM_PROCID is 'x'"));
  EXPECT_THAT(with("SLURM_PROCID", "3"), HasSubstr("rank 3 of 3"));
  EXPECT_THAT(with("SLURM_STEP_NODELIST", "node["), HasSubstr("SLURM_STEP_NODELIST: "));
  EXPECT_THAT(with("SLURM_STEP_TASKS_PER_NODE", "2"), HasSubstr("has 2 entries"));
  EXPECT_THAT(with("SLURM_STEP_TASKS_PER_NODE", "2,2"), HasSubstr("more tasks than the 3"));
  EXPECT_THAT(with("SLURM_NODEID", "2"), HasSubstr("SLURM_NODEID is 2"));
}

TEST(FindPlace, ExplainNamesTheVariablesAndTheResult) {
  const std::string text = Find(SlurmStep(2)).value().Explain();
  EXPECT_THAT(text, HasSubstr("source: Slurm (Slurm step 7.0)\n"));
  EXPECT_THAT(text, HasSubstr("  SLURM_PROCID=2\n"));
  EXPECT_THAT(text, HasSubstr("tasks: 1 ps + 2 worker\n"));
  EXPECT_THAT(text, HasSubstr("this is: worker/1, rank 2 of 3\n"));
  EXPECT_THAT(Find({{"TF_CONFIG", kConfig}}).value().Explain(), HasSubstr("TF_CONFIG: {\"cluster\":{\"ps\":[\"a:1\"]"));
}

}  // namespace
}  // namespace millrace::launch
