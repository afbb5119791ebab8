#include "millrace/launch/job_spec.h"

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/launch/keeper_link.h"
#include "millrace/launch/task_place.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RestartPolicy, IsReadAndPausesDoubleUpToAMinute) {
  EXPECT_EQ(RestartPolicy::Parse("never")->limit, 0);
  EXPECT_EQ(RestartPolicy::Parse("on-failure")->limit, 3);
  EXPECT_EQ(RestartPolicy::Parse("on-failure:12")->limit, 12);
  for (const char* bad :
       {"", "always", "on-failure:", "on-failure:0", "on-failure:-1", "on-failure:x", "on-failure3"}) {
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
  for (const char* bad :
       {"", "# nothing", "a slots=0", "a slots=x", "a slots", "a b", "-oProxyCommand=x", "slots=3", "a address="}) {
    EXPECT_FALSE(ParseHosts(bad).ok()) << bad;
  }
  EXPECT_THAT(std::string(ParseHosts("a\nb slots=x").status().message()), HasSubstr("line 2"));
}

TEST(Hosts, FilesOfMpiAndPbsAreRead) {
  const auto slots = [](const char* text) {
    std::vector<std::string> found;
    const std::vector<Host> hosts = ParseHosts(text).value();
    for (const Host& host : hosts) found.push_back(absl::StrCat(host.name, "=", host.slots));
    return found;
  };
  EXPECT_THAT(slots("node1 slots=4 max_slots=8\nnode2\n"), ElementsAre("node1=4", "node2=1"));      // Open MPI
  EXPECT_THAT(slots("node1:4\nnode2\nfe80::1\n"), ElementsAre("node1=4", "node2=1", "fe80::1=1"));  // MPICH
  EXPECT_THAT(slots("node1\nnode1\nnode2\n"), ElementsAre("node1=1", "node1=1", "node2=1"));        // PBS
  for (const char* bad : {"node1:", "node1:x", "node1:0", "a max_slots=x"}) EXPECT_FALSE(ParseHosts(bad).ok()) << bad;
}

TEST(Hosts, AreFilledInOrderAndMustSuffice) {
  JobSpec job = {.groups = {{.name = "ps", .count = 1}, {.name = "worker", .count = 3}}, .program = {"p"}};
  EXPECT_THAT(*PlaceTasks(job), ElementsAre(-1, -1, -1, -1));
  job.hosts = {{.name = "a", .slots = 2}, {.name = "b", .slots = 5}};
  EXPECT_THAT(*PlaceTasks(job), ElementsAre(0, 0, 1, 1));
  job.hosts = {{.name = "a", .slots = 2}, {.name = "b"}};
  EXPECT_THAT(std::string(job.Check().message()), HasSubstr("3 slots for 4 tasks"));
}

TEST(Hosts, LoopbackAndOtherMachinesDoNotMix) {
  JobSpec job = {.groups = {{.name = "worker", .count = 2}},
                 .program = {"p"},
                 .hosts = {{.name = "localhost"}, {.name = "me@127.0.0.1"}}};
  EXPECT_TRUE(job.Check().ok()) << job.Check();
  job.hosts[1].name = "node2";
  EXPECT_THAT(std::string(job.Check().message()), HasSubstr("'localhost'"));
  job.hosts[0].address = "10.0.0.1";
  EXPECT_TRUE(job.Check().ok()) << job.Check();
}

TEST(JobSpec, MistakesAreNamed) {
  const auto message = [](JobSpec job) { return std::string(job.Check().message()); };
  EXPECT_THAT(message({.groups = {{.name = "worker", .count = 1}}}), HasSubstr("no program"));
  EXPECT_THAT(message({.program = {"p"}}), HasSubstr("no tasks"));
  EXPECT_THAT(message({.groups = {{.name = "a b", .count = 1}}, .program = {"p"}}), HasSubstr("'a b'"));
  EXPECT_THAT(message({.groups = {{.name = "w", .count = 1}, {.name = "w", .count = 1}}, .program = {"p"}}),
              HasSubstr("twice"));
  EXPECT_THAT(message({.groups = {{.name = "w", .count = 20000}}, .program = {"p"}}), HasSubstr("10000"));
  EXPECT_EQ(message({.groups = {{.name = "w", .count = 1, .program = {"q"}}}}), "");
  EXPECT_THAT(message({.groups = {{.name = "ps", .count = 1}}, .program = {"p"}, .bind_workers = true}),
              HasSubstr("--bind_workers"));
  EXPECT_EQ(message({.groups = {{.name = "chief", .count = 1}}, .program = {"p"}, .bind_workers = true}), "");
}

TEST(JobSpec, WorkersAndChiefsOfTheClusterTrain) {
  for (const char* name : {"worker", "chief", "master"}) EXPECT_TRUE(TaskGroup{.name = name}.trains()) << name;
  for (const char* name : {"ps", "evaluator", "w"}) EXPECT_FALSE(TaskGroup{.name = name}.trains()) << name;
  EXPECT_FALSE((TaskGroup{.name = "worker", .side = true}.trains()));
}

TEST(SplitCommand, ReadsQuotesAsAShellDoes) {
  EXPECT_THAT(*SplitCommand(R"(ssh -p 2222 -i "my key" 'a b'\ c "")"),
              ElementsAre("ssh", "-p", "2222", "-i", "my key", "a b c", ""));
  for (const char* bad : {"", "  ", "a 'b", "a \"b", "a \\"}) EXPECT_FALSE(SplitCommand(bad).ok()) << bad;
}

TEST(TaskPlace, IsToldInTfConfigFlagsAndBraces) {
  const ClusterAddresses cluster = {{"ps", {"a:1"}}, {"worker", {"b:1", "b:2"}}};
  const TaskName task = {"worker", 1};
  EXPECT_EQ(TfConfig(cluster, task),
            R"({"cluster":{"ps":["a:1"],"worker":["b:1","b:2"]},"task":{"index":1,"type":"worker"}})");
  EXPECT_THAT(HostFlags(cluster, task),
              ElementsAre("--ps_hosts=a:1", "--worker_hosts=b:1,b:2", "--job_name=worker", "--task_index=1"));
  EXPECT_THAT(FillIn({"p", "--h={worker_hosts}", "{job_name}-{task_index}", "{cluster_spec}", "{port} {address}",
                      "{\"a\": {other}}"},
                     cluster, task, "b:2"),
              ElementsAre("p", "--h=b:1,b:2", "worker-1", "ps|a:1,worker|b:1;b:2", "2 b:2", "{\"a\": {other}}"));
}

TEST(Ssh, CommandQuotesWhatTheShellThereReads) {
  const std::vector<std::string> words = SshCommand(
      {.ssh = {"ssh", "-p", "22"}, .millrace = "/opt/it's/millrace", .directory = "/a b"}, "me@host", "ps/0");
  EXPECT_EQ(words.front(), "ssh");
  EXPECT_EQ(words[words.size() - 2], "me@host");
  EXPECT_EQ(words[words.size() - 3], "--");
  EXPECT_EQ(words.back(), R"(cd '/a b' && exec '/opt/it'\''s/millrace' task-keeper 120.000)");
  EXPECT_THAT(absl::StrJoin(words, " "), HasSubstr("-o BatchMode=yes"));
}

}  // namespace
}  // namespace millrace::launch
