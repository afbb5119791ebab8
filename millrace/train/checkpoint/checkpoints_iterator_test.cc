#include "millrace/train/checkpoint/checkpoints_iterator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/millrace.h"
#include "millrace/train/checkpoint/checkpoint_manager.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A graph of one variable whose checkpoints go to a directory.
struct ManagedModel {
  explicit ManagedModel(const std::string& directory, CheckpointManagerOptions options = {})
      : manager(root, directory, std::move(options)), init(GlobalVariablesInitializer(root)) {
    StatusOr<ClientSession> made = ClientSession::Create(root);
    EXPECT_EQ(made.status(), absl::OkStatus());
    if (made.ok()) session = std::make_unique<ClientSession>(*std::move(made));
  }
  Scope root = Scope::NewRoot();
  Var w = Var(root, "w", 1.0);
  CheckpointManager manager;
  Operation init;
  std::unique_ptr<ClientSession> session;
};

class CheckpointsTest : public ::testing::Test {
 protected:
  const TempDirectory directory_ = TempDirectory::Make("checkpoints_test").value();
  std::string Path(const std::string& name) const { return directory_.File(name); }
};

TEST_F(CheckpointsTest, AManagerNumbersKeepsAndRestores) {
  {
    ManagedModel model(directory_.path(), {.saver = {.max_to_keep = 2}});
    EXPECT_EQ(model.manager.RestoreOrInitialize(model.session.get(), model.init).value(), "");
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(model.manager.Save(model.session.get()).ok());
    EXPECT_THAT(model.manager.checkpoints().value(), ElementsAre(Path("ckpt-2"), Path("ckpt-3")));
    EXPECT_FALSE(CheckpointExists(Path("ckpt-1")));
    EXPECT_TRUE(CheckpointExists(Path("ckpt-2")));
  }
  // A new process goes on, and counts what the first has left.
  ManagedModel again(directory_.path(), {.saver = {.max_to_keep = 2}});
  EXPECT_EQ(again.manager.latest_checkpoint().value(), Path("ckpt-3"));
  EXPECT_EQ(again.manager.RestoreOrInitialize(again.session.get(), again.init).value(), Path("ckpt-3"));
  EXPECT_EQ(again.session->Run({again.w}).value()[0].scalar<float>(), 1);
  EXPECT_EQ(again.manager.Save(again.session.get()).value(), Path("ckpt-4"));
  EXPECT_EQ(again.manager.Save(again.session.get(), 10).value(), Path("ckpt-10"));
  EXPECT_THAT(again.manager.checkpoints().value(), ElementsAre(Path("ckpt-4"), Path("ckpt-10")));
  EXPECT_FALSE(CheckpointExists(Path("ckpt-3")));
  EXPECT_EQ(again.manager.Save(again.session.get(), -1).status().code(), absl::StatusCode::kInvalidArgument);
  Scope bad = Scope::NewRoot();
  const Var w(bad, "w", 1.0);
  const CheckpointManager manager(bad, directory_.path(), {.checkpoint_name = "a/b"});
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("'a/b' is not the name of a file"));
}

TEST_F(CheckpointsTest, AnIteratorWaitsForNewOnesByTheClock) {
  VirtualClock clock;
  ManagedModel model(directory_.path());
  ASSERT_TRUE(model.session->Run(model.init).ok());
  const absl::Time begun = clock.Now();
  // A checkpoint is saved after each 100 seconds, three in all.
  int saved = 0;
  const auto pause = [&](absl::Duration by) {
    clock.Advance(by);
    if (saved < 3 && clock.Now() >= begun + absl::Seconds(100) * (saved + 1)) {
      ++saved;
      ASSERT_TRUE(model.manager.Save(model.session.get()).ok());
    }
  };
  int timeouts = 0;
  CheckpointsIterator checkpoints(directory_.path(), {.timeout = absl::Seconds(150),
                                                      .timeout_fn = [&] { return ++timeouts == 2; },
                                                      .wait = {.clock = &clock, .pause = pause}});
  std::string checkpoint;
  for (const char* expected : {"ckpt-1", "ckpt-2", "ckpt-3"}) {
    ASSERT_TRUE(checkpoints.Next(&checkpoint).value());
    EXPECT_EQ(checkpoint, Path(expected));
  }
  EXPECT_LT(clock.Now() - begun, absl::Seconds(310));
  EXPECT_FALSE(checkpoints.Next(&checkpoint).value());
  EXPECT_EQ(timeouts, 2);
  EXPECT_GE(clock.Now() - begun, absl::Seconds(600));
}

TEST_F(CheckpointsTest, AnIntervalLeavesCheckpointsOut) {
  VirtualClock clock;
  ManagedModel model(directory_.path());
  ASSERT_TRUE(model.session->Run(model.init).ok());
  ASSERT_TRUE(model.manager.Save(model.session.get()).ok());
  CheckpointsIterator checkpoints(directory_.path(),
                                  {.min_interval = absl::Seconds(60),
                                   .timeout = absl::Seconds(1),
                                   .wait = {.clock = &clock, .pause = [&](absl::Duration by) { clock.Advance(by); }}});
  std::string checkpoint;
  ASSERT_TRUE(checkpoints.Next(&checkpoint).value());
  const absl::Time first = clock.Now();
  ASSERT_TRUE(model.manager.Save(model.session.get()).ok() && model.manager.Save(model.session.get()).ok());
  ASSERT_TRUE(checkpoints.Next(&checkpoint).value());
  EXPECT_EQ(checkpoint, Path("ckpt-3"));
  EXPECT_GE(clock.Now() - first, absl::Seconds(60));
  EXPECT_FALSE(checkpoints.Next(&checkpoint).value());
  CheckpointsIterator bad(directory_.path(), {.timeout = absl::Seconds(-1)});
  EXPECT_EQ(bad.Next(&checkpoint).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
