// The files that the chief's hooks write, and how the next training uses them.
#include "millrace/train/summary.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class MonitoredTrainingSessionTest : public testing::Test {
 protected:
  std::vector<std::string> Files(const std::string& folder = "") {
    const StatusOr<std::vector<std::string>> files = FileSystem::Posix()->List(folder.empty() ? dir_.path() : folder);
    return files.ok() ? *files : std::vector<std::string>();
  }
  const TempDirectory dir_ = TempDirectory::Make("monitored_training_test").value();
};

TEST_F(MonitoredTrainingSessionTest, ATrainingGoesOnWhereTheOneBeforeEnded) {
  for (const int64_t last : {30, 50}) {
    CountingModel model;
    ScalarSummary(model.scope, "w_now", model.w);
    auto session =
        MonitoredTrainingSession(
            model.scope, {.checkpoint_dir = dir_.path(), .hooks = {StopAt(last)}, .save_checkpoint_every_steps = 10})
            .value();
    int runs = 0;
    while (!session->ShouldStop()) {
      ASSERT_EQ(session->Run(model.train), absl::OkStatus());
      ++runs;
    }
    EXPECT_EQ(runs, last == 30 ? 30 : 20);
    EXPECT_EQ(session->Close(), absl::OkStatus());
    EXPECT_EQ(LatestCheckpoint(dir_.path()).value(), absl::StrCat(dir_.File("model.ckpt"), "-", last));
  }
  EXPECT_THAT(Files(), Contains(HasSubstr("events.out.tfevents")));
}

// Flips one bit in the middle of a file.
void FlipABit(const std::string& path) {
  FileSystem* const files = FileSystem::Posix();
  std::string bytes = ReadWholeFile(files, path).value();
  bytes[bytes.size() / 2] ^= 4;
  const std::unique_ptr<WritableFile> file = files->OpenWritable(path).value();
  ASSERT_EQ(file->Append(bytes), absl::OkStatus());
  ASSERT_EQ(file->Close(), absl::OkStatus());
}

TEST_F(MonitoredTrainingSessionTest, ADamagedNewestCheckpointCostsTheStepsSinceTheOneBefore) {
  for (const bool on_servers : {false, true}) {
    const std::string folder = dir_.File(on_servers ? "servers" : "local");
    const auto servers = on_servers ? StartServers({{"ps", 1}, {"worker", 1}}) : std::vector<std::unique_ptr<Server>>();
    const MonitoredTrainingSessionOptions options{.master = on_servers ? servers[1]->target() : "",
                                                  .checkpoint_dir = folder,
                                                  .save_checkpoint_every_steps = 10,
                                                  .keep_values = false};
    const auto train = [&](int64_t last) {
      CountingModel model = on_servers ? CountingModel::OfWorker(0) : CountingModel();
      MonitoredTrainingSessionOptions own = options;
      own.hooks = {StopAt(last)};
      StatusOr<std::unique_ptr<MonitoredSession>> session = MonitoredTrainingSession(model.scope, own);
      if (!session.ok()) return session.status();
      while (!(*session)->ShouldStop()) MR_RETURN_IF_ERROR((*session)->Run(model.train));
      return (*session)->Close();
    };
    ASSERT_EQ(train(10), absl::OkStatus());
    ASSERT_EQ(train(20), absl::OkStatus());
    ASSERT_EQ(LatestCheckpoint(folder).value(), folder + "/model.ckpt-20");
    FlipABit(folder + "/model.ckpt-20.data-00000-of-00001");
    // 20 is damaged, so this begins at 10, and ends as if it had not been there.
    CountingModel model = on_servers ? CountingModel::OfWorker(0) : CountingModel();
    {
      auto session = MonitoredTrainingSession(model.scope, options);
      ASSERT_EQ(session.status(), absl::OkStatus());
      EXPECT_EQ((*session)->Run({model.w}).value()[0].scalar<float>(), 10);
      EXPECT_EQ(LatestCheckpoint(folder).value(), folder + "/model.ckpt-10");
      ASSERT_EQ((*session)->Close(), absl::OkStatus());
    }
    ASSERT_EQ(train(25), absl::OkStatus());
    EXPECT_EQ(LatestCheckpoint(folder).value(), folder + "/model.ckpt-25");
    // Without a good one it says so instead of beginning anew.
    const CheckpointState state = ReadCheckpointState(FileSystem::Posix(), folder).value();
    for (const CheckpointState::Kept& kept : state.all) FlipABit(kept.prefix + ".data-00000-of-00001");
    const Status none = train(30);
    EXPECT_TRUE(absl::IsDataLoss(none)) << none;
    EXPECT_THAT(none.message(), HasSubstr("model.ckpt-25"));
  }
}

TEST_F(MonitoredTrainingSessionTest, WhatKilledSavesHaveLeftIsRemoved) {
  const auto train = [&] {
    CountingModel model;
    auto session = MonitoredTrainingSession(model.scope, {.checkpoint_dir = dir_.path()}).value();
    ASSERT_EQ(session->Run(model.train), absl::OkStatus());
    ASSERT_EQ(session->Close(), absl::OkStatus());
  };
  train();
  FileSystem* const files = FileSystem::Posix();
  ASSERT_EQ(files->MakeDirectories(dir_.File("model.ckpt-9_temp_77")), absl::OkStatus());
  const std::vector<std::string> leftovers = {
      "model.ckpt-9_temp_77/part.data-00000-of-00001", "model.ckpt-9.data-00000-of-00001.tempstate12-0",
      "model.ckpt-8.data-00000-of-00001", "model.ckpt-8.meta", "model.ckpt-7.index.tempstate12-1"};
  const std::vector<std::string> others = {"model.ckpt-notes.txt", "other.ckpt-8.data-00000-of-00001",
                                           "model.ckpt.bak"};
  for (const auto& names : {leftovers, others}) {
    for (const std::string& name : names) ASSERT_EQ(ReplaceFile(files, dir_.File(name), "x"), absl::OkStatus());
  }
  train();
  for (const std::string& name : leftovers) EXPECT_FALSE(files->Exists(dir_.File(name)).ok()) << name;
  for (const std::string& name : others) EXPECT_TRUE(files->Exists(dir_.File(name)).ok()) << name;
  EXPECT_FALSE(files->Exists(dir_.File("model.ckpt-9_temp_77")).ok());
  for (const int step : {0, 1, 2}) {
    EXPECT_TRUE(files->Exists(dir_.File(absl::StrCat("model.ckpt-", step, ".index"))).ok()) << step;
  }
}

TEST_F(MonitoredTrainingSessionTest, ACheckpointOfAnotherPlaceMayBeTheBeginning) {
  const std::string first = dir_.File("first"), second = dir_.File("second");
  {
    CountingModel model;
    auto session = MonitoredTrainingSession(model.scope, {.checkpoint_dir = first}).value();
    for (int i = 0; i < 7; ++i) ASSERT_EQ(session->Run(model.train), absl::OkStatus());
    ASSERT_EQ(session->Close(), absl::OkStatus());
  }
  CountingModel model;
  auto session =
      MonitoredTrainingSession(
          model.scope, {.checkpoint_dir = second, .checkpoint_filename_with_path = LatestCheckpoint(first).value()})
          .value();
  EXPECT_EQ(session->Run({model.w}).value()[0].scalar<float>(), 7);
  EXPECT_EQ(LatestCheckpoint(second).value(), second + "/model.ckpt-7");
}

TEST_F(MonitoredTrainingSessionTest, WhatIsSwitchedOffWritesNothing) {
  CountingModel model;
  ScalarSummary(model.scope, "w_now", model.w);
  {
    auto session = MonitoredTrainingSession(model.scope, {.checkpoint_dir = dir_.path(),
                                                          .save_checkpoint_every = absl::InfiniteDuration(),
                                                          .save_summaries_every_steps = 0})
                       .value();
    ASSERT_EQ(session->Run(model.train), absl::OkStatus());
    ASSERT_EQ(session->Close(), absl::OkStatus());
  }
  EXPECT_THAT(Files(), Not(Contains(HasSubstr("model.ckpt"))));
}

TEST_F(MonitoredTrainingSessionTest, OnlyTheChiefWrites) {
  auto servers = StartServers({{"ps", 1}, {"worker", 2}});
  CountingModel of_chief = CountingModel::OfWorker(0), of_worker = CountingModel::OfWorker(1);
  auto chief_only = std::make_shared<RecordingHook>();
  auto chief = MonitoredTrainingSession(of_chief.scope, {.master = servers[1]->target(),
                                                         .checkpoint_dir = dir_.File("chief"),
                                                         .chief_only_hooks = {chief_only}})
                   .value();
  auto worker = MonitoredTrainingSession(of_worker.scope, {.master = servers[2]->target(),
                                                           .is_chief = false,
                                                           .checkpoint_dir = dir_.File("worker"),
                                                           .chief_only_hooks = {chief_only}})
                    .value();
  ASSERT_EQ(worker->Run(of_worker.train), absl::OkStatus());
  EXPECT_THAT(chief_only->seen, testing::ElementsAre("begin", "created"));
  EXPECT_EQ(worker->Close(), absl::OkStatus());
  EXPECT_EQ(chief->Close(), absl::OkStatus());
  EXPECT_THAT(Files(dir_.File("worker")), IsEmpty());
  EXPECT_THAT(Files(dir_.File("chief")), Contains("model.ckpt-1.index"));
}

TEST_F(MonitoredTrainingSessionTest, MisuseIsNamed) {
  CountingModel model;
  const auto message = [&](MonitoredTrainingSessionOptions options) {
    return std::string(MonitoredTrainingSession(model.scope, std::move(options)).status().message());
  };
  EXPECT_THAT(message({.save_checkpoint_every = absl::Seconds(1), .save_checkpoint_every_steps = 1}),
              HasSubstr("one of save_checkpoint_every_steps and save_checkpoint_every"));
  EXPECT_THAT(message({.save_summaries_every_steps = -1}), HasSubstr("save_summaries_every_steps is -1"));
  EXPECT_THAT(message({.master = "grpc://localhost:1", .session = {.target = "grpc://localhost:2"}}),
              HasSubstr("is not the master"));
  EXPECT_THAT(message({.checkpoint_filename_with_path = dir_.File("nothing-1")}), HasSubstr("nothing-1"));
  const Scope bare = Scope::NewRoot();
  const Var v(bare, "v", 1.0f);
  EXPECT_THAT(MonitoredTrainingSession(bare, {.checkpoint_dir = dir_.path()}).status().message(),
              HasSubstr("no global step"));
}

}  // namespace
}  // namespace millrace
