#include "millrace/train/checkpoint/warm_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class WarmStartTest : public testing::Test {
 protected:
  void SetUp() override {
    Scope scope = Scope::NewRoot();
    const Var w(scope, "encoder/w", Input({1.0f, 2.0f})), b(scope, "encoder/b", Input({3.0f})),
        out(scope, "out/w", Input({4.0f, 5.0f, 6.0f}));
    const Var step = GlobalStep(scope);
    Saver saver(scope);
    const Operation init = GlobalVariablesInitializer(scope);
    ClientSession session = ClientSession::Create(scope).value();
    ASSERT_EQ(session.Run(init), absl::OkStatus());
    ASSERT_TRUE(saver.Save(&session, dir_.File("model"), {.global_step = 5}).ok());
  }
  Var Zeros(const std::string& name, int64_t size) { return Var(scope_, name, {size}, init::Zeros()); }

  TempDirectory dir_ = TempDirectory::Make("warm_start_test").value();
  Scope scope_ = Scope::NewRoot();
};

TEST_F(WarmStartTest, VariablesThatARegexNamesBeginWithSavedValues) {
  const Var w = Zeros("encoder/w", 2), b = Zeros("encoder/b", 1), head = Zeros("head/w", 9);
  const Var step = GlobalStep(scope_);
  ASSERT_EQ(WarmStart(scope_, dir_.path(), {.variables = {"encoder/"}}), absl::OkStatus());
  const Tensors values = RunOnce(scope_, {w, b, head, step});
  EXPECT_THAT(Floats(values[0]), ElementsAre(1, 2));
  EXPECT_THAT(Floats(values[1]), ElementsAre(3));
  EXPECT_THAT(Floats(values[2]), testing::Each(0));
  EXPECT_EQ(values[3].scalar<int64_t>(), 0);
}

TEST_F(WarmStartTest, NamesMayDiffer) {
  const Var w = Zeros("tower/weights", 2);
  ASSERT_EQ(WarmStart(scope_, dir_.File("model-5"), {.names_in_checkpoint = {{"tower/weights", "encoder/w"}}}),
            absl::OkStatus());
  EXPECT_THAT(Floats(RunOnce(scope_, {w})[0]), ElementsAre(1, 2));
}

TEST_F(WarmStartTest, ScopesAreMappedToScopes) {
  const Var w = Zeros("model/enc/w", 2), b = Zeros("model/enc/b", 1), out = Zeros("head", 3);
  ASSERT_EQ(InitFromCheckpoint(scope_, dir_.path(), {{"encoder/", "model/enc/"}, {"out/w", "head"}}), absl::OkStatus());
  const Tensors values = RunOnce(scope_, {w, b, out});
  EXPECT_THAT(Floats(values[0]), ElementsAre(1, 2));
  EXPECT_THAT(Floats(values[1]), ElementsAre(3));
  EXPECT_THAT(Floats(values[2]), ElementsAre(4, 5, 6));
}

TEST_F(WarmStartTest, PartsTakeTheirSlices) {
  const PartitionedVar out(scope_, "out/w", {3}, init::Zeros(), FixedSizePartitioner(2));
  ASSERT_EQ(WarmStart(scope_, dir_.path()), absl::OkStatus());
  EXPECT_THAT(Floats(RunOnce(scope_, {out.Value(scope_)})[0]), ElementsAre(4, 5, 6));
}

TEST_F(WarmStartTest, WhatDoesNotFitIsNamedOnBothSides) {
  const Var w = Zeros("encoder/w", 4), other = Zeros("other", 2);
  const Status shape = WarmStart(scope_, dir_.path(), {.variables = {"encoder/w"}});
  EXPECT_EQ(shape.message(),
            absl::StrCat("variable encoder/w of shape [4] cannot be initialised from encoder/w of checkpoint ",
                         dir_.File("model-5"), ", which has shape [2]"));
  const Status missing = WarmStart(scope_, dir_.path(), {.variables = {"other"}});
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(missing.message(), HasSubstr("variable other is to be initialised from other, which checkpoint"));
  EXPECT_THAT(WarmStart(scope_, dir_.path(), {.variables = {"("}}).message(),
              HasSubstr("'(' is not a valid regular expression"));
  EXPECT_THAT(WarmStart(scope_, dir_.path(), {.variables = {"nothing"}}).message(),
              HasSubstr("no variable of the graph matches"));
  EXPECT_THAT(WarmStart(scope_, dir_.File("nowhere")).message(), HasSubstr("there is no checkpoint"));
  EXPECT_THAT(InitFromCheckpoint(scope_, dir_.path(), {{"encoder/", "other"}}).message(),
              HasSubstr("a scope, which ends with '/'"));
  EXPECT_THAT(InitFromCheckpoint(scope_, dir_.path(), {{"encoder/w", "none"}}).message(),
              HasSubstr("no variable none"));
  EXPECT_THAT(Floats(RunOnce(scope_, {w})[0]), testing::Each(0));
}

TEST_F(WarmStartTest, ACheckpointIsListedAndLoaded) {
  const std::vector<CheckpointVariable> all = ListVariables(dir_.path()).value();
  ASSERT_EQ(all.size(), 4);
  EXPECT_EQ(all[0].name, "encoder/b");
  EXPECT_EQ(all[2].name, "global_step");
  EXPECT_EQ(all[2].dtype, DType::kInt64);
  EXPECT_EQ(all[3].shape, Shape({3}));
  EXPECT_THAT(Floats(LoadVariable(dir_.path(), "out/w").value()), ElementsAre(4, 5, 6));
  EXPECT_TRUE(absl::IsNotFound(LoadVariable(dir_.path(), "w").status()));
  EXPECT_EQ(ListVariables(MILLRACE_TESTDATA "/checkpoints/sharded").value()[0].slices, 2);
}

}  // namespace
}  // namespace millrace
