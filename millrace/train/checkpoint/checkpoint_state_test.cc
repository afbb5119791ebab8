#include "millrace/train/checkpoint/checkpoint_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::HasSubstr;

std::vector<std::string> Prefixes(const CheckpointState& state) {
  std::vector<std::string> all;
  for (const auto& kept : state.all) all.push_back(kept.prefix);
  return all;
}

TEST(CheckpointStateTest, TensorFlowsTextIsRead) {
  const CheckpointState state = ParseCheckpointState(
                                    "model_checkpoint_path: \"model.ckpt-8\"\n"
                                    "all_model_checkpoint_paths: \"/elsewhere/model.ckpt-\\303\\244\"\n"
                                    "all_model_checkpoint_paths: 'model.ckpt-8'\n"
                                    "all_model_checkpoint_timestamps: 1700000000.25\n"
                                    "all_model_checkpoint_timestamps: 1700000001\n"
                                    "last_preserved_timestamp: 1600000000.5\n"
                                    "some_field_of_the_future: { a: 1 }\n")
                                    .value();
  EXPECT_EQ(state.latest, "model.ckpt-8");
  EXPECT_THAT(Prefixes(state), testing::ElementsAre("/elsewhere/model.ckpt-\303\244", "model.ckpt-8"));
  EXPECT_EQ(absl::ToUnixMillis(state.all[0].time), 1700000000250);
  EXPECT_EQ(absl::ToUnixMillis(state.last_preserved), 1600000000500);
}

TEST(CheckpointStateTest, TheNewestIsAmongAll) {
  EXPECT_THAT(Prefixes(ParseCheckpointState("model_checkpoint_path: 'b'").value()), testing::ElementsAre("b"));
  EXPECT_THAT(
      Prefixes(ParseCheckpointState("model_checkpoint_path: 'b' all_model_checkpoint_paths: ['b', 'a']").value()),
      testing::ElementsAre("a", "b"));
  EXPECT_TRUE(ParseCheckpointState("").value().latest.empty());
}

TEST(CheckpointStateTest, RubbishIsAnErrorWithItsLine) {
  EXPECT_THAT(ParseCheckpointState("model_checkpoint_path: 'a'\nmodel_checkpoint_path 7").status().message(),
              HasSubstr("line 2, column"));
  for (const std::string& text : {std::string("\0\1\2", 3), std::string(10000, '{'),
                                  std::string("model_checkpoint_path: \""), std::string("a: [[[[[")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCheckpointState(text).status()));
  }
  ParseCheckpointState("all_model_checkpoint_timestamps: nan last_preserved_timestamp: inf").status().IgnoreError();
}

TEST(CheckpointStateTest, PathsOfTheDirectoryAreRelativeAndOthersStay) {
  const TempDirectory dir = TempDirectory::Make("checkpoint_state_test").value();
  FileSystem* const files = FileSystem::Posix();
  const CheckpointState written = {.latest = dir.File("m-2"),
                                   .all = {{"/elsewhere/m-1"}, {dir.File("sub/m-1")}, {dir.File("m-2")}}};
  ASSERT_EQ(WriteCheckpointState(files, dir.path(), written), absl::OkStatus());
  EXPECT_EQ(ReadWholeFile(files, dir.File("checkpoint")).value(),
            "model_checkpoint_path: \"m-2\"\n"
            "all_model_checkpoint_paths: \"/elsewhere/m-1\"\n"
            "all_model_checkpoint_paths: \"sub/m-1\"\n"
            "all_model_checkpoint_paths: \"m-2\"\n");
  const CheckpointState read = ReadCheckpointState(files, dir.path()).value();
  EXPECT_EQ(read.latest, written.latest);
  EXPECT_EQ(Prefixes(read), Prefixes(written));
  EXPECT_TRUE(absl::IsNotFound(ReadCheckpointState(files, dir.path(), "other").status()));
}

}  // namespace
}  // namespace millrace
