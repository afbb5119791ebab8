// CheckpointSaverHook and SummarySaverHook, driven as a MonitoredSession drives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"
#include "millrace/base/forwarding_files.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/train/events_testing.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SaverHooksTest : public testing::Test {
 protected:
  SaverHooksTest() : step_(GlobalStep(scope_)), train_(step_.AssignAdd(scope_, 1)) {
    ScalarSummary(scope_, "loss", 2.0f);
  }

  void Begin(SessionRunHook* hook) {
    ASSERT_EQ(hook->Begin(scope_), absl::OkStatus());
    const Operation init = GlobalVariablesInitializer(scope_);
    session_.emplace(ClientSession::Create(scope_).value());
    ASSERT_EQ(session_->Run(init), absl::OkStatus());
  }
  // Runs one step with the hook. Returns whether the hook requested the end.
  bool RunStep(SessionRunHook* hook) {
    SessionRunContext context{.session = &*session_};
    const SessionRunArgs args = hook->BeforeRun(&context).value();
    SessionRunValues values;
    values.results = session_->Run(args.feeds, args.fetches, {train_}).value();
    EXPECT_EQ(hook->AfterRun(&context, values), absl::OkStatus());
    return context.stop_requested;
  }
  std::vector<std::string> Kept() {
    std::vector<std::string> names;
    const StatusOr<CheckpointState> state = ReadCheckpointState(FileSystem::Posix(), dir_.path());
    if (!state.ok()) return names;
    for (const auto& kept : state->all) names.push_back(kept.prefix.substr(dir_.path().size() + 1));
    return names;
  }
  std::string EventFile() {
    const std::vector<std::string> names = FileSystem::Posix()->List(dir_.path()).value();
    for (const std::string& name : names) {
      if (name.starts_with("events.")) return dir_.File(name);
    }
    return "";
  }

  TempDirectory dir_ = TempDirectory::Make("saver_hooks_test").value();
  VirtualClock clock_{absl::FromUnixSeconds(1700000000)};
  Scope scope_ = Scope::NewRoot();
  Var step_;
  Operation train_;
  std::optional<ClientSession> session_;
};

// A disk that does not answer while it is told to be silent, and that may give up.
class SilentDisk : public ForwardingFileSystem {
 public:
  SilentDisk() : ForwardingFileSystem(FileSystem::Posix()) {}
  StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path, Mode mode) override {
    MutexLock lock(&mu_);
    ++asked_;
    changed_.SignalAll();
    while (silent_) changed_.Wait(&mu_);
    if (gives_up_) return DeadlineExceeded(path, ": the disk does not answer");
    return ForwardingFileSystem::OpenWritable(path, mode);
  }
  void Set(bool silent, bool gives_up = false) {
    MutexLock lock(&mu_);
    silent_ = silent;
    gives_up_ = gives_up;
    asked_ = 0;
    changed_.SignalAll();
  }
  void AwaitRequest() {
    MutexLock lock(&mu_);
    while (asked_ == 0) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  bool gives_up_ ABSL_GUARDED_BY(mu_) = false;
  int asked_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST_F(SaverHooksTest, ASaveThatDoesNotEndIsNamedAfterTwoIntervals) {
  SilentDisk disk;
  const auto waits = std::make_shared<WaitRegistry>(&clock_);
  CheckpointSaverHook hook({.checkpoint_dir = dir_.path(),
                            .every = absl::Seconds(10),
                            .saver_options = {.files = &disk},
                            .waits = waits,
                            .clock = &clock_});
  Begin(&hook);
  Coordinator coordinator;
  ASSERT_EQ(hook.AfterCreateSession(&*session_, &coordinator), absl::OkStatus());
  disk.Set(/*silent=*/true);
  clock_.Advance(absl::Seconds(10));
  RunStep(&hook);  // the save begins
  disk.AwaitRequest();
  clock_.Advance(absl::Seconds(9));
  RunStep(&hook);
  EXPECT_TRUE(waits->List().empty());
  clock_.Advance(absl::Seconds(2));
  RunStep(&hook);
  ASSERT_EQ(waits->List().size(), 1u);
  EXPECT_EQ(waits->List()[0].node, "saving checkpoints");
  EXPECT_EQ(waits->List()[0].what,
            absl::StrCat("no checkpoint has been saved for 21s, one is due every 10s: the save of ",
                         dir_.File("model.ckpt-1"), " began 11s ago and has not ended"));
  disk.Set(/*silent=*/false);
  hook.WaitForSave();
  EXPECT_TRUE(waits->List().empty());
  EXPECT_THAT(Kept(), ElementsAre("model.ckpt-0", "model.ckpt-1"));
  // A disk that gives up costs a checkpoint, not the training.
  disk.Set(/*silent=*/false, /*gives_up=*/true);
  clock_.Advance(absl::Seconds(10));
  RunStep(&hook);
  hook.WaitForSave();
  EXPECT_FALSE(coordinator.ShouldStop());
  EXPECT_THAT(Kept(), ElementsAre("model.ckpt-0", "model.ckpt-1"));
  disk.Set(/*silent=*/false);
  clock_.Advance(absl::Seconds(10));
  RunStep(&hook);
  hook.WaitForSave();
  EXPECT_THAT(Kept(), ElementsAre("model.ckpt-0", "model.ckpt-1", "model.ckpt-5"));
  coordinator.RequestStop();
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
}

TEST_F(SaverHooksTest, AStepThatTookLongIsNoSaveThatFailed) {
  CheckpointSaverHook hook({.checkpoint_dir = dir_.path(), .every = absl::Seconds(10), .clock = &clock_});
  Begin(&hook);
  Coordinator coordinator;
  ASSERT_EQ(hook.AfterCreateSession(&*session_, &coordinator), absl::OkStatus());
  clock_.Advance(absl::Seconds(25));
  testing::internal::CaptureStderr();
  RunStep(&hook);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::HasSubstr("no checkpoint has been saved for 25s, one is due every 10s: no step ended when it was due"));
  hook.WaitForSave();
  coordinator.RequestStop();
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
}

TEST_F(SaverHooksTest, CheckpointsAreSavedAtTheBeginningEverySoManyStepsAndAtTheEnd) {
  for (const auto& [background, of_one_step] :
       {std::pair(false, true), std::pair(true, true), std::pair(true, false)}) {
    TempDirectory dir = TempDirectory::Make("saver_hooks_test").value();
    scope_ = Scope::NewRoot();
    step_ = GlobalStep(scope_);
    train_ = step_.AssignAdd(scope_, 1);
    CheckpointSaverHook hook({.checkpoint_dir = dir.path(),
                              .every_steps = 3,
                              .saver_options = {.max_to_keep = 0},
                              .background = background,
                              .of_one_step = of_one_step});
    Begin(&hook);
    Coordinator coordinator;
    ASSERT_EQ(hook.AfterCreateSession(&*session_, &coordinator), absl::OkStatus());
    EXPECT_THAT(hook.saver()->last_checkpoints(), ElementsAre(dir.File("model.ckpt-0")));
    for (int i = 0; i < 8; ++i) {
      RunStep(&hook);
      hook.WaitForSave();  // so that none is left out because the one before is not written yet
    }
    coordinator.RequestStop();
    ASSERT_EQ(hook.End(&*session_), absl::OkStatus());
    EXPECT_EQ(coordinator.Join(), absl::OkStatus());
    EXPECT_THAT(hook.saver()->last_checkpoints(), ElementsAre(dir.File("model.ckpt-0"), dir.File("model.ckpt-3"),
                                                              dir.File("model.ckpt-6"), dir.File("model.ckpt-8")));
    EXPECT_EQ(LoadVariable(dir.File("model.ckpt-6"), "global_step").value().scalar<int64_t>(), 6);
  }
}

TEST_F(SaverHooksTest, CheckpointsAreSavedEverySoLong) {
  CheckpointSaverHook hook(
      {.checkpoint_dir = dir_.path(), .every = absl::Seconds(10), .background = false, .clock = &clock_});
  Begin(&hook);
  ASSERT_EQ(hook.AfterCreateSession(&*session_, nullptr), absl::OkStatus());
  for (int i = 0; i < 7; ++i) {
    clock_.Advance(absl::Seconds(4));
    RunStep(&hook);
  }
  EXPECT_THAT(Kept(), ElementsAre("model.ckpt-0", "model.ckpt-3", "model.ckpt-6"));
  ASSERT_EQ(hook.End(&*session_), absl::OkStatus());
  EXPECT_THAT(Kept(), ElementsAre("model.ckpt-0", "model.ckpt-3", "model.ckpt-6", "model.ckpt-7"));
}

TEST_F(SaverHooksTest, ARestoredTrainingDoesNotSaveWhatItRestored) {
  {
    CheckpointSaverHook hook({.checkpoint_dir = dir_.path(), .every_steps = 100});
    Begin(&hook);
    ASSERT_EQ(hook.AfterCreateSession(&*session_, nullptr), absl::OkStatus());
    RunStep(&hook);
    ASSERT_EQ(hook.End(&*session_), absl::OkStatus());
  }
  const std::string before = ReadWholeFile(FileSystem::Posix(), dir_.File("checkpoint")).value();
  CheckpointSaverHook hook({.checkpoint_dir = dir_.path(), .every_steps = 100});
  Begin(&hook);
  ASSERT_EQ(hook.saver()->Restore(&*session_, LatestCheckpoint(dir_.path()).value()), absl::OkStatus());
  ASSERT_EQ(hook.AfterCreateSession(&*session_, nullptr), absl::OkStatus());
  EXPECT_EQ(ReadWholeFile(FileSystem::Posix(), dir_.File("checkpoint")).value(), before);
  ASSERT_EQ(hook.End(&*session_), absl::OkStatus());
  EXPECT_THAT(Kept(), ElementsAre("model.ckpt-0", "model.ckpt-1"));
}

class Listener : public CheckpointSaverListener {
 public:
  Status BeforeSave(ClientSession*, int64_t step) override { return Note("before", step); }
  StatusOr<bool> AfterSave(ClientSession*, int64_t step, const std::string& prefix) override {
    EXPECT_EQ(CheckCheckpoint(FileSystem::Posix(), prefix), absl::OkStatus());
    MR_RETURN_IF_ERROR(Note("after", step));
    return step >= 2;
  }
  Status End(ClientSession*, int64_t step) override { return Note("end", step); }
  Status Note(const char* what, int64_t step) {
    told.push_back(absl::StrCat(what, " ", step));
    return absl::OkStatus();
  }
  std::vector<std::string> told;
};

TEST_F(SaverHooksTest, ListenersAreToldAndMayEndTheTraining) {
  const auto listener = std::make_shared<Listener>();
  const auto writer = FileWriter::Create(dir_.File("logs")).value();
  CheckpointSaverHook hook({.checkpoint_dir = dir_.path(),
                            .every_steps = 2,
                            .listeners = {listener},
                            .background = false,
                            .writer = writer.get()});
  Begin(&hook);
  ASSERT_EQ(hook.AfterCreateSession(&*session_, nullptr), absl::OkStatus());
  EXPECT_FALSE(RunStep(&hook));
  EXPECT_TRUE(RunStep(&hook));
  ASSERT_EQ(hook.End(&*session_), absl::OkStatus());
  EXPECT_THAT(listener->told, ElementsAre("before 0", "after 0", "before 2", "after 2", "end 2"));
  ASSERT_EQ(writer->Flush(), absl::OkStatus());
  const auto events = EventsOf(writer->path());
  ASSERT_EQ(events.size(), 5);
  EXPECT_EQ(events[1].what_case(), ::tensorflow::Event::kGraphDef);
  EXPECT_EQ(events[2].what_case(), ::tensorflow::Event::kMetaGraphDef);
  EXPECT_EQ(events[4].session_log().checkpoint_path(), dir_.File("model.ckpt-2"));
}

TEST_F(SaverHooksTest, AnErrorInTheBackgroundStopsTheCoordinator) {
  CheckpointSaverHook hook({.checkpoint_dir = dir_.path(), .every_steps = 1});
  Begin(&hook);
  Coordinator coordinator;
  ASSERT_EQ(hook.AfterCreateSession(&*session_, &coordinator), absl::OkStatus());
  // The list of checkpoints cannot be replaced any more.
  ASSERT_TRUE(FileSystem::Posix()->Remove(dir_.File("checkpoint")).ok());
  ASSERT_TRUE(FileSystem::Posix()->MakeDirectories(dir_.File("checkpoint/in_the_way")).ok());
  RunStep(&hook);
  EXPECT_TRUE(coordinator.WaitForStop(absl::Seconds(30)));
  EXPECT_THAT(coordinator.Join().message(),
              testing::AllOf(HasSubstr("saving checkpoints"), HasSubstr(dir_.File("checkpoint"))));
}

TEST_F(SaverHooksTest, WrongOptionsAreTold) {
  EXPECT_THAT(CheckpointSaverHook({.every_steps = 1}).Begin(scope_).message(), HasSubstr("give a checkpoint_dir"));
  EXPECT_THAT(CheckpointSaverHook({.checkpoint_dir = "d"}).Begin(scope_).message(),
              HasSubstr("set every_steps or every"));
  EXPECT_THAT(
      CheckpointSaverHook({.checkpoint_dir = "d", .every_steps = 1, .every = absl::Seconds(1)}).Begin(scope_).message(),
      HasSubstr("not both"));
  EXPECT_THAT(CheckpointSaverHook({.checkpoint_dir = "d", .every_steps = 1}).Begin(Scope::NewRoot()).message(),
              HasSubstr("no global step"));
  EXPECT_THAT(SummarySaverHook({.every_steps = 1}).Begin(scope_).message(), HasSubstr("an output_dir or a writer"));
  EXPECT_THAT(SummarySaverHook({.every_steps = 0, .output_dir = "d"}).Begin(scope_).message(),
              HasSubstr("every 0 steps makes no sense"));
}

TEST_F(SaverHooksTest, SummariesAreWrittenEverySoManySteps) {
  SummarySaverHook hook({.every_steps = 3, .output_dir = dir_.path()});
  Begin(&hook);
  ASSERT_EQ(hook.AfterCreateSession(&*session_, nullptr), absl::OkStatus());
  for (int i = 0; i < 8; ++i) RunStep(&hook);
  ASSERT_EQ(hook.End(&*session_), absl::OkStatus());
  EXPECT_EQ(SummariesOf(EventFile()).size(), 3);
}

TEST_F(SaverHooksTest, SummariesAreWrittenEverySoLong) {
  SummarySaverHook hook({.every = absl::Seconds(10), .output_dir = dir_.path(), .clock = &clock_});
  Begin(&hook);
  ASSERT_EQ(hook.AfterCreateSession(&*session_, nullptr), absl::OkStatus());
  for (int i = 0; i < 6; ++i) {
    RunStep(&hook);
    clock_.Advance(absl::Seconds(4));
  }
  ASSERT_EQ(hook.End(&*session_), absl::OkStatus());
  EXPECT_EQ(SummariesOf(EventFile()).size(), 2);
}

}  // namespace
}  // namespace millrace
