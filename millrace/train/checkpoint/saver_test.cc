#include "millrace/train/checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"
#include "millrace/io/bundle.h"
#include "millrace/io/faulty_files_testing.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class SaverTest : public testing::Test {
 protected:
  // Gives the variable `w` its value in a new session, and saves.
  ClientSession Initialised() {
    const Operation init = GlobalVariablesInitializer(scope_);
    ClientSession session = ClientSession::Create(scope_).value();
    EXPECT_EQ(session.Run(init), absl::OkStatus());
    return session;
  }
  std::vector<std::string> Files() { return FileSystem::Posix()->List(dir_.path()).value(); }
  std::string Text(const std::string& name) { return ReadWholeFile(FileSystem::Posix(), dir_.File(name)).value(); }
  std::string Prefix(int64_t step) { return absl::StrCat(dir_.File("model.ckpt"), "-", step); }
  void Spoil(const std::string& path, const std::string& content) {
    auto file = FileSystem::Posix()->OpenWritable(path).value();
    EXPECT_TRUE(file->Append(content).ok() && file->Close().ok());
  }

  TempDirectory dir_ = TempDirectory::Make("saver_test").value();
  VirtualWallClock clock_{absl::FromUnixMillis(1700000000500)};
  Scope scope_ = Scope::NewRoot();
};

TEST_F(SaverTest, ASavedVariableIsRestoredInAnotherSession) {
  const Var w(scope_, "layer/w", Input({1.0f, 2.0f, 3.0f})),
      text(scope_, "text", Input("so"), {.dtype = DType::kString});
  const Operation change = w.Assign(scope_, {7.0f, 8.0f, 9.0f});
  Saver saver(scope_);
  ClientSession session = Initialised();
  EXPECT_EQ(saver.Save(&session, dir_.File("model.ckpt"), {.global_step = 8}).value(), Prefix(8));
  EXPECT_THAT(Files(),
              ElementsAre("checkpoint", "model.ckpt-8.data-00000-of-00001", "model.ckpt-8.index", "model.ckpt-8.meta"));
  ASSERT_EQ(session.Run(change), absl::OkStatus());
  EXPECT_THAT(Floats(session.Run({w}).value()[0]), ElementsAre(7, 8, 9));
  ASSERT_EQ(saver.Restore(&session, Prefix(8)), absl::OkStatus());
  EXPECT_THAT(Floats(session.Run({w}).value()[0]), ElementsAre(1, 2, 3));

  ClientSession other = ClientSession::Create(scope_).value();
  ASSERT_EQ(saver.Restore(&other, Prefix(8)), absl::OkStatus());
  const Tensors values = other.Run({w, text}).value();
  EXPECT_THAT(Floats(values[0]), ElementsAre(1, 2, 3));
  EXPECT_EQ(values[1].scalar<std::string>(), "so");
}

TEST_F(SaverTest, TheStateFileNamesTheNewestAndAllWithTheirTimes) {
  const Var w(scope_, "w", Input(1.0f));
  Saver saver(scope_, {.wall_clock = &clock_});
  ClientSession session = Initialised();
  for (const int64_t step : {0, 8}) {
    ASSERT_TRUE(saver.Save(&session, dir_.File("model.ckpt"), {.global_step = step}).ok());
    clock_.Advance(absl::Seconds(10));
  }
  EXPECT_EQ(Text("checkpoint"),
            "model_checkpoint_path: \"model.ckpt-8\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-0\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-8\"\n"
            "all_model_checkpoint_timestamps: 1700000000.5\n"
            "all_model_checkpoint_timestamps: 1700000010.5\n");
  EXPECT_EQ(LatestCheckpoint(dir_.path()).value(), Prefix(8));
  EXPECT_THAT(saver.last_checkpoints(), ElementsAre(Prefix(0), Prefix(8)));
}

TEST_F(SaverTest, OlderOnesAreRemovedButOneForEachSuchTime) {
  const Var w(scope_, "w", Input(1.0f));
  Saver saver(scope_, {.max_to_keep = 2, .keep_checkpoint_every = absl::Hours(1), .wall_clock = &clock_});
  ClientSession session = Initialised();
  for (int64_t step = 0; step < 10; ++step) {
    ASSERT_TRUE(saver.Save(&session, dir_.File("model.ckpt"), {.global_step = step, .write_meta_graph = false}).ok());
    clock_.Advance(absl::Minutes(25));
  }
  EXPECT_THAT(saver.last_checkpoints(), ElementsAre(Prefix(8), Prefix(9)));
  std::vector<std::string> indexes;
  for (const std::string& name : Files()) {
    if (name.ends_with(".index")) indexes.push_back(name);
  }
  // Saved at 75, 125 and 200 minutes: the first after each hour.
  EXPECT_THAT(indexes,
              ElementsAre("model.ckpt-3.index", "model.ckpt-5.index", "model.ckpt-8.index", "model.ckpt-9.index"));
  EXPECT_THAT(Text("checkpoint"), HasSubstr("last_preserved_timestamp: 17000"));
}

TEST_F(SaverTest, WhatAnEarlierProcessKeptCountsToo) {
  const Var w(scope_, "w", Input(1.0f));
  ClientSession session = Initialised();
  {
    Saver saver(scope_);
    for (const int64_t step : {1, 2, 3})
      ASSERT_TRUE(saver.Save(&session, dir_.File("model.ckpt"), {.global_step = step}).ok());
  }
  Saver later(scope_, {.max_to_keep = 2});
  ASSERT_EQ(later.RecoverLastCheckpoints(dir_.path()), absl::OkStatus());
  EXPECT_THAT(later.last_checkpoints(), ElementsAre(Prefix(1), Prefix(2), Prefix(3)));
  ASSERT_TRUE(later.Save(&session, dir_.File("model.ckpt"), {.global_step = 4}).ok());
  EXPECT_THAT(later.last_checkpoints(), ElementsAre(Prefix(3), Prefix(4)));
  EXPECT_THAT(Files(),
              ElementsAre("checkpoint", "model.ckpt-3.data-00000-of-00001", "model.ckpt-3.index", "model.ckpt-3.meta",
                          "model.ckpt-4.data-00000-of-00001", "model.ckpt-4.index", "model.ckpt-4.meta"));
  EXPECT_EQ(later.RecoverLastCheckpoints(dir_.File("nowhere")), absl::OkStatus());
}

TEST_F(SaverTest, TheOneBeforeIsTakenWhenTheNewestIsMissingOrDamaged) {
  const Var w(scope_, "w", Input({1.0f, 2.0f}));
  Saver saver(scope_);
  ClientSession session = Initialised();
  for (const int64_t step : {1, 2, 3, 4})
    ASSERT_TRUE(saver.Save(&session, dir_.File("model.ckpt"), {.global_step = step}).ok());
  ASSERT_TRUE(FileSystem::Posix()->Remove(BundleIndexPath(Prefix(4))).ok());
  EXPECT_EQ(LatestCheckpoint(dir_.path()).value(), Prefix(3));
  Spoil(BundleIndexPath(Prefix(3)), "rubbish");
  EXPECT_EQ(LatestCheckpoint(dir_.path()).value(), Prefix(2));
  Spoil(BundleDataPath(Prefix(2), 0, 1), "short");
  EXPECT_EQ(LatestCheckpoint(dir_.path()).value(), Prefix(1));
  ASSERT_TRUE(FileSystem::Posix()->Remove(BundleDataPath(Prefix(1), 0, 1)).ok());
  // None is whole: to begin anew would hide it.
  EXPECT_TRUE(absl::IsDataLoss(LatestCheckpoint(dir_.path()).status()));
  Spoil(dir_.File("checkpoint"), "model_checkpoint_path: 7\n");
  EXPECT_THAT(LatestCheckpoint(dir_.path()).status().message(),
              HasSubstr("checkpoint: cannot parse the list of checkpoints: line 1"));
  EXPECT_EQ(LatestCheckpoint(dir_.File("nowhere")).value(), "");
  Spoil(dir_.File("checkpoint"), "model_checkpoint_path: \"gone\"\n");
  EXPECT_EQ(LatestCheckpoint(dir_.path()).value(), "");
}

// Of the changes that the program makes itself; io/bundle_test has those that the tasks make.
TEST_F(SaverTest, ACrashAtAnyChangeLeavesTheNewestOrTheOneBefore) {
  const Var step(scope_, "step", Input(0), {.dtype = DType::kInt64});
  const Operation next = step.AssignAdd(scope_, 1);
  FaultyFiles files;
  Saver saver(scope_, {.max_to_keep = 1, .files = &files});
  Saver check(scope_);
  ClientSession session = Initialised();
  ASSERT_TRUE(saver.Save(&session, dir_.File("model.ckpt"), {.global_step = 0}).ok());
  bool crashed = true;
  for (int64_t n = 0; crashed; ++n) {
    ASSERT_EQ(session.Run(next), absl::OkStatus());
    const int64_t now = session.Run({step}).value()[0].scalar<int64_t>();
    files.CrashAtChange(n);
    const bool saved = saver.Save(&session, dir_.File("model.ckpt"), {.global_step = now}).ok();
    crashed = files.crashed();
    EXPECT_TRUE(saved || crashed);
    const std::string latest = LatestCheckpoint(dir_.path()).value();
    ASSERT_THAT(latest, testing::AnyOf(Prefix(now), Not(IsEmpty()))) << "after change " << n;
    ClientSession other = ClientSession::Create(scope_).value();
    ASSERT_EQ(check.Restore(&other, latest), absl::OkStatus());
    const int64_t restored = other.Run({step}).value()[0].scalar<int64_t>();
    EXPECT_EQ(restored, *StepOfCheckpoint(latest));
    EXPECT_GE(restored, crashed ? 0 : now);
    files.CrashAtChange(1000000);
    ASSERT_TRUE(saver.Save(&session, dir_.File("model.ckpt"), {.global_step = now}).ok());
  }
}

TEST_F(SaverTest, WhatDoesNotFitIsNamed) {
  const Var w(scope_, "w", Input({1.0f, 2.0f})), b(scope_, "b", Input(1.0f));
  Saver saver(scope_, {.variables = {w}});
  ClientSession session = Initialised();
  ASSERT_TRUE(saver.Save(&session, dir_.File("m")).ok());
  const auto restore = [&](const Scope& scope, SaverOptions options = {}) {
    Saver other(scope, std::move(options));
    ClientSession s = ClientSession::Create(scope).value();
    return other.Restore(&s, dir_.File("m"));
  };
  const Status missing = restore(scope_);
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_EQ(missing.message(), absl::StrCat("checkpoint ", dir_.File("m"), " lacks variable b"));
  Scope shape = Scope::NewRoot();
  const Var other_shape(shape, "w", Input({1.0f, 2.0f, 3.0f}));
  EXPECT_EQ(restore(shape).message(),
            absl::StrCat("variable w has shape [3], but in checkpoint ", dir_.File("m"), " it has shape [2]"));
  Scope type = Scope::NewRoot();
  const Var other_type(type, "v", Input({1.0, 2.0}), {.dtype = DType::kDouble});
  EXPECT_THAT(restore(type, {.names = {{"w", other_type}}}).message(),
              HasSubstr("variable v (w there) has type double"));
  const Status nowhere = [&] {
    Saver other(scope_);
    return other.Restore(&session, dir_.File("nowhere"));
  }();
  EXPECT_TRUE(absl::IsNotFound(nowhere)) << nowhere;
  EXPECT_THAT(nowhere.message(), HasSubstr("cannot restore " + dir_.File("nowhere")));
}

TEST_F(SaverTest, WrongUseIsToldClearly) {
  Scope empty = Scope::NewRoot();
  Saver nothing(empty);
  ClientSession none = ClientSession::Create(empty).value();
  EXPECT_THAT(nothing.Save(&none, dir_.File("m")).status().message(), HasSubstr("no variables to save"));
  const Var w(scope_, "w", Input(1.0f)), v(scope_, "v", Input(1.0f));
  Saver saver(scope_);
  ClientSession session = Initialised();
  EXPECT_THAT(saver.Save(&session, dir_.path() + "/").status().message(), HasSubstr("is not a checkpoint prefix"));
  EXPECT_THAT(saver.Save(&session, dir_.File("m"), {.latest_filename = "a/b"}).status().message(),
              HasSubstr("not a path"));
  // A file stands where the directory should be.
  Spoil(dir_.File("file"), "");
  EXPECT_FALSE(saver.Save(&session, dir_.File("file/m")).ok());
  Saver twice(scope_, {.variables = {w}, .names = {{"w", v}}});
  EXPECT_EQ(scope_.status().message(), "saver save: variables w and v would both be saved as w");
}

TEST_F(SaverTest, UninitialisedVariablesAreNamedAndNothingIsLeft) {
  const Var w(scope_, "w", Input(1.0f));
  Saver saver(scope_, {.sharded = true});
  ClientSession session = ClientSession::Create(scope_).value();
  const Status status = saver.Save(&session, dir_.File("m")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("w"));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(SaverTest, WhatChangesAfterTheBeginningOfASaveIsNotInIt) {
  const Var w(scope_, "w", {1000}, init::Ones());
  const Operation change = w.AssignAdd(scope_, Input(Tensor::FromVector(std::vector<float>(1000, 1))));
  for (const bool sharded : {false, true}) {
    Saver saver(scope_, {.sharded = sharded});
    ClientSession session = Initialised();
    Saver::FinishSave finish = saver.BeginSave(&session, dir_.File("m"), {.global_step = sharded}).value();
    for (int i = 0; i < 3; ++i) ASSERT_EQ(session.Run(change), absl::OkStatus());
    const std::string prefix = finish().value();
    EXPECT_EQ(session.Run({w}).value()[0].flat<float>()[0], 4);
    ASSERT_EQ(saver.Restore(&session, prefix), absl::OkStatus());
    EXPECT_THAT(Floats(session.Run({w}).value()[0]), testing::Each(1));
  }
}

TEST_F(SaverTest, ACheckpointOfTensorFlowIsRestored) {
  const std::string prefix = MILLRACE_TESTDATA "/checkpoints/tiny-7";
  const Var a(scope_, "a", {3}, init::Zeros()), s(scope_, "s", {2}, init::Zeros(), {.dtype = DType::kString}),
      w(scope_, "p/w", {3, 2}, init::Zeros());
  Saver saver(scope_);
  ClientSession session = ClientSession::Create(scope_).value();
  ASSERT_EQ(saver.Restore(&session, prefix), absl::OkStatus());
  const Tensors values = session.Run({a, s, w}).value();
  EXPECT_THAT(Floats(values[0]), ElementsAre(1, 2, 3));
  EXPECT_THAT(values[1].flat<std::string>(), ElementsAre("hi", "world!"));
  EXPECT_THAT(Floats(values[2]), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(StepOfCheckpoint(prefix), 7);
  EXPECT_EQ(StepOfCheckpoint("model"), std::nullopt);
  EXPECT_EQ(StepOfCheckpoint("model-7b"), std::nullopt);
}

TEST_F(SaverTest, APartitionedVariableIsRestoredIntoAnotherNumberOfParts) {
  std::vector<float> rows;
  for (int i = 0; i < 14; ++i) rows.push_back(static_cast<float>(i));
  const Tensor values = Tensor::FromSpan<float>(rows, Shape({7, 2}));
  const PartitionedVar three(scope_, "w", {7, 2}, init::Constant(values), FixedSizePartitioner(3));
  Saver saver(scope_);
  ClientSession session = Initialised();
  ASSERT_TRUE(saver.Save(&session, dir_.File("m")).ok());
  for (const int parts : {1, 2, 3, 7}) {
    Scope other = Scope::NewRoot();
    const PartitionedVar w(other, "w", {7, 2}, init::Zeros(), FixedSizePartitioner(parts));
    const Output whole = w.Value(other);
    Saver restorer(other);
    ClientSession s = ClientSession::Create(other).value();
    ASSERT_EQ(restorer.Restore(&s, dir_.File("m")), absl::OkStatus());
    EXPECT_EQ(Floats(s.Run({whole}).value()[0]), rows) << parts;
  }
  Scope whole = Scope::NewRoot();
  const Var w(whole, "w", {7, 2}, init::Zeros());
  Saver restorer(whole);
  ClientSession s = ClientSession::Create(whole).value();
  ASSERT_EQ(restorer.Restore(&s, dir_.File("m")), absl::OkStatus());
  EXPECT_EQ(Floats(s.Run({w}).value()[0]), rows);
}

}  // namespace
}  // namespace millrace
