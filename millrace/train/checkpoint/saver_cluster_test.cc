// Checkpoints of variables on several tasks, with real servers in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"
#include "millrace/base/child_process_testing.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/io/bundle.h"

namespace millrace {
namespace {

using testing::ElementsAre;

// A model whose variables are dealt out among parameter servers.
struct Model {
  explicit Model(int ps, int parts = 2)
      : root(Scope::NewRoot().WithDeviceFunction(
            ReplicaDeviceSetter({.ps_tasks = ps, .worker_device = "/job:worker/task:0"}))),
        a(root, "a", Input({1.0f, 2.0f})),
        b(root, "b", Input({3.0f})),
        c(root, "c", Input(4.0f)),
        table(root, "table", {6, 2}, init::Ones(), FixedSizePartitioner(parts)) {}
  Scope root;
  Var a, b, c;
  PartitionedVar table;
};

struct Cluster {
  explicit Cluster(int ps) : servers(StartServers({{"ps", ps}, {"worker", 1}})) {}
  SessionOptions options() const { return OverTheNetwork(*servers.back()); }
  std::vector<std::unique_ptr<Server>> servers;
};

class SaverClusterTest : public testing::Test {
 protected:
  std::vector<std::string> Files() { return FileSystem::Posix()->List(dir_.path()).value(); }
  // Saved by two parameter servers with other values than variables begin with.
  std::string SaveFromTwo(bool sharded) {
    Model model(2);
    Saver saver(model.root, {.sharded = sharded});
    const Operation init = GlobalVariablesInitializer(model.root);
    const Operation change =
        Group(model.root, {model.a.Assign(model.root, {10.0f, 20.0f}),
                           model.table.Assign(model.root, Tensor::FromSpan<float>(rows_, Shape({6, 2})))});
    const Cluster cluster(2);
    ClientSession session = ClientSession::Create(model.root, cluster.options()).value();
    EXPECT_EQ(session.Run(init), absl::OkStatus());
    EXPECT_EQ(session.Run(change), absl::OkStatus());
    return saver.Save(&session, dir_.File("m"), {.global_step = 3}).value();
  }
  void ExpectRestored(const Model& model, ClientSession* session, const Output& table) {
    const Tensors values = session->Run({model.a, model.b, model.c, table}).value();
    EXPECT_THAT(Floats(values[0]), ElementsAre(10, 20));
    EXPECT_THAT(Floats(values[1]), ElementsAre(3));
    EXPECT_EQ(values[2].scalar<float>(), 4);
    EXPECT_EQ(Floats(values[3]), rows_);
  }

  const std::vector<float> rows_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  TempDirectory dir_ = TempDirectory::Make("saver_cluster_test").value();
};

TEST_F(SaverClusterTest, EveryServerWritesItsShardAndAnyNumberOfThemRestores) {
  const std::string prefix = SaveFromTwo(true);
  EXPECT_THAT(Files(),
              ElementsAre("checkpoint", "m-3.data-00000-of-00002", "m-3.data-00001-of-00002", "m-3.index", "m-3.meta"));
  const auto reader = BundleReader::Open(FileSystem::Posix(), prefix).value();
  // Round robin: a and c are on one server, b and the first part of the table on the other.
  EXPECT_EQ(reader->Entries()->at("a").shard_id(), 0);
  EXPECT_EQ(reader->Entries()->at("b").shard_id(), 1);
  for (const int ps : {1, 3}) {
    for (const bool sharded : {false, true}) {
      Model model(ps, ps);
      Saver saver(model.root, {.sharded = sharded});
      const Output table = model.table.Value(model.root);
      const Cluster cluster(ps);
      ClientSession session = ClientSession::Create(model.root, cluster.options()).value();
      ASSERT_EQ(saver.Restore(&session, prefix), absl::OkStatus());
      ExpectRestored(model, &session, table);
    }
  }
}

TEST_F(SaverClusterTest, OneFileIsWrittenUnlessSharded) {
  const std::string prefix = SaveFromTwo(false);
  EXPECT_THAT(Files(), ElementsAre("checkpoint", "m-3.data-00000-of-00001", "m-3.index", "m-3.meta"));
  Model model(2);
  Saver saver(model.root, {.sharded = true});
  const Output table = model.table.Value(model.root);
  const Cluster cluster(2);
  ClientSession session = ClientSession::Create(model.root, cluster.options()).value();
  ASSERT_EQ(saver.Restore(&session, prefix), absl::OkStatus());
  ExpectRestored(model, &session, table);
}

TEST_F(SaverClusterTest, TasksDoNotMatterToACheckpoint) {
  const std::string prefix = SaveFromTwo(true);
  Scope local = Scope::NewRoot();
  const Var a(local, "a", {2}, init::Zeros()), table(local, "table", {6, 2}, init::Zeros());
  Saver saver(local);
  ClientSession session = ClientSession::Create(local).value();
  ASSERT_EQ(saver.Restore(&session, prefix), absl::OkStatus());
  const Tensors values = session.Run({a, table}).value();
  EXPECT_THAT(Floats(values[0]), ElementsAre(10, 20));
  EXPECT_EQ(Floats(values[1]), rows_);
}

TEST_F(SaverClusterTest, WhatChangesAfterTheBeginningOfASaveIsNotInIt) {
  Model model(2);
  Saver saver(model.root, {.sharded = true});
  const Operation init = GlobalVariablesInitializer(model.root);
  const Operation change =
      Group(model.root, {model.a.AssignAdd(model.root, {1.0f, 1.0f}), model.b.AssignAdd(model.root, {1.0f})});
  const Cluster cluster(2);
  ClientSession session = ClientSession::Create(model.root, cluster.options()).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  for (int64_t step = 0; step < 3; ++step) {
    Saver::FinishSave finish = saver.BeginSave(&session, dir_.File("m"), {.global_step = step}).value();
    ASSERT_EQ(session.Run(change), absl::OkStatus());
    const std::string prefix = finish().value();
    EXPECT_THAT(Floats(LoadVariable(prefix, "a").value()), ElementsAre(1.0f + step, 2.0f + step));
    EXPECT_THAT(Floats(LoadVariable(prefix, "b").value()), ElementsAre(3.0f + step));
  }
}

TEST_F(SaverClusterTest, ALostServerIsNamedAndNothingIsLeft) {
  Model model(2);
  Saver saver(model.root, {.sharded = true});
  const Operation init = GlobalVariablesInitializer(model.root);
  Cluster cluster(2);
  ClientSession session = ClientSession::Create(model.root, cluster.options()).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  cluster.servers[1]->Stop();
  const Status status = saver.Save(&session, dir_.File("m")).status();
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsAborted(status)) << status;
  EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr("cannot save"), testing::HasSubstr("/job:ps")));
  EXPECT_THAT(Files(), testing::IsEmpty());
}

// Saves for ever, in a process of its own that is killed (see below), and so without the fixture, whose folder it would
// leave behind.
TEST(KilledSaverTest, SavesUntilKilled) {
  const char* const directory = ChildProcess::Argument();
  if (directory == nullptr) GTEST_SKIP() << "for other tests";
  Scope root = Scope::NewRoot();
  const Var step(root, "step", Input(0), {.dtype = DType::kInt64}), w(root, "w", {200000}, init::Zeros());
  const Operation next =
      Group(root, {step.AssignAdd(root, 1), w.AssignAdd(root, Op(root, "Fill", {std::vector<int32_t>{200000}, 1.0f}))});
  Saver saver(root, {.max_to_keep = 2, .sharded = true});
  const Operation init = GlobalVariablesInitializer(root);
  ClientSession session = ClientSession::Create(root).value();
  const std::string latest = LatestCheckpoint(directory).value();
  ASSERT_EQ(latest.empty() ? session.Run(init) : saver.Restore(&session, latest), absl::OkStatus());
  ASSERT_EQ(saver.RecoverLastCheckpoints(directory), absl::OkStatus());
  for (;;) {
    ASSERT_EQ(session.Run(next), absl::OkStatus());
    const int64_t now = session.Run({step}).value()[0].scalar<int64_t>();
    ASSERT_TRUE(saver.Save(&session, JoinPath(directory, "m"), {.global_step = now}).ok());
    ChildProcess::Say("saved");
  }
}

TEST_F(SaverClusterTest, WhatAKilledProcessLeavesCanBeRestored) {
  int64_t last = -1;
  for (int round = 0; round < 8; ++round) {
    ChildProcess child("KilledSaverTest.SavesUntilKilled", dir_.path());
    // After a few saves and a little more each time.
    for (int saves = 0; saves < 2; ++saves) ASSERT_TRUE(child.Hears("saved"));
    Notification never;
    never.WaitFor(absl::Microseconds(1700 * round));
    child.Kill();

    const StatusOr<std::string> latest = LatestCheckpoint(dir_.path());
    ASSERT_EQ(latest.status(), absl::OkStatus());
    ASSERT_FALSE(latest->empty());
    const int64_t step = LoadVariable(*latest, "step").value().scalar<int64_t>();
    EXPECT_EQ(step, StepOfCheckpoint(*latest));
    EXPECT_GT(step, last);
    EXPECT_THAT(Floats(LoadVariable(*latest, "w").value()), testing::Each(static_cast<float>(step)));
    last = step;
  }
}

}  // namespace
}  // namespace millrace
