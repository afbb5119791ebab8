#include "millrace/api/moving_averages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

std::vector<std::string> Names(const Scope& s) {
  std::vector<std::string> names;
  for (const Var& variable : GlobalVariables(s)) names.push_back(variable.var_name());
  return names;
}

// The average of w after each of three steps that add 1 and 10 to w = 1, 2.
std::vector<std::vector<float>> AveragesOfThreeSteps(bool by_updates) {
  const Scope s = Scope::NewRoot();
  const Var w(s, "w", {1.0, 2.0});
  const Var step = GlobalStep(s);
  const Operation train = w.AssignAdd(s, {1.0, 10.0});
  const Operation count = step.AssignAdd(s.WithControlDependencies({train}), 1);
  const Scope after = s.WithControlDependencies({count});
  ExponentialMovingAverage averages(
      0.9, {.num_updates = by_updates ? Input(step.Read(after)) : Input(), .zero_debias = true});
  const Operation update = averages.Apply(after, {w});
  EXPECT_TRUE(s.ok()) << s.status();
  EXPECT_THAT(Names(s), ElementsAre("w", "global_step", "w/ExponentialMovingAverage"));
  EXPECT_EQ(averages.Average(w).var_name(), "w/ExponentialMovingAverage");
  EXPECT_TRUE(averages.Average(step).empty());
  const Operation init = GlobalVariablesInitializer(s);
  ClientSession session = ClientSession::Create(s).value();
  EXPECT_TRUE(session.Run(init).ok());
  std::vector<std::vector<float>> values;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(session.Run(update), absl::OkStatus());
    values.push_back(Floats(session.Run({averages.Average(w)}).value()[0]));
  }
  return values;
}

TEST(ExponentialMovingAverage, FollowsAsTensorFlowsDoes) {
  const auto plain = AveragesOfThreeSteps(false);
  EXPECT_THAT(plain[0], Pointwise(FloatNear(1e-5), {1.1f, 3.0f}));
  EXPECT_THAT(plain[1], Pointwise(FloatNear(1e-5), {1.29f, 4.9f}));
  EXPECT_THAT(plain[2], Pointwise(FloatNear(1e-5), {1.561f, 7.61f}));
  const auto faster = AveragesOfThreeSteps(true);
  EXPECT_THAT(faster[0], Pointwise(FloatNear(1e-5), {1.818182f, 10.181818f}));
  EXPECT_THAT(faster[1], Pointwise(FloatNear(1e-5), {2.704545f, 19.045454f}));
  EXPECT_THAT(faster[2], Pointwise(FloatNear(2e-5), {3.601399f, 28.013985f}));
}

TEST(ExponentialMovingAverage, OfTensorsStartsAtZeroOrIsCorrected) {
  for (const bool zero_debias : {false, true}) {
    const Scope s = Scope::NewRoot();
    const Output x = ops::Placeholder(s.WithOpName("x"), DType::kFloat, {.shape = {2}});
    ExponentialMovingAverage averages(0.9, {.zero_debias = zero_debias});
    const Operation update = averages.ApplyTensors(s, {x});
    const Operation init = GlobalVariablesInitializer(s);
    ASSERT_TRUE(s.ok()) << s.status();
    if (zero_debias) {
      EXPECT_THAT(Names(s), ElementsAre("x/ExponentialMovingAverage", "x/ExponentialMovingAverage/biased",
                                        "x/ExponentialMovingAverage/local_step"));
    }
    ClientSession session = ClientSession::Create(s).value();
    ASSERT_TRUE(session.Run(init).ok());
    for (float i = 1; i <= 3; ++i) {
      ASSERT_EQ(session.Run({{x, Tensor::Of<float>({i, 10})}}, {}, {update}).status(), absl::OkStatus());
    }
    const std::vector<float> expected =
        zero_debias ? std::vector<float>{2.0701103f, 10} : std::vector<float>{0.561f, 2.71f};
    EXPECT_THAT(Floats(session.Run({averages.Average(x)}).value()[0]), Pointwise(FloatNear(1e-5), expected));
  }
}

TEST(ExponentialMovingAverage, ASaverRestoresAveragesInPlaceOfVariables) {
  const TempDirectory directory = TempDirectory::Make("moving_averages_test").value();
  std::string prefix;
  {
    const Scope s = Scope::NewRoot();
    const Var w(s, "w", {1.0, 2.0});
    const Var fixed(s, "fixed", 5.0, {.trainable = false});
    ExponentialMovingAverage averages(0.5);
    const Operation update = averages.Apply(s.WithControlDependencies({w.AssignAdd(s, {1.0, 10.0})}));
    Saver saver(s);
    const Operation init = GlobalVariablesInitializer(s);
    ClientSession session = ClientSession::Create(s).value();
    ASSERT_TRUE(session.Run(init).ok() && session.Run(update).ok());
    prefix = saver.Save(&session, directory.File("model.ckpt")).value();
  }
  // Another graph, without averages.
  const Scope s = Scope::NewRoot();
  const Var w(s, "w", {0.0, 0.0});
  const Var fixed(s, "fixed", 0.0, {.trainable = false});
  const ExponentialMovingAverage averages(0.5);
  EXPECT_EQ(averages.AverageName(w), "w/ExponentialMovingAverage");
  const std::map<std::string, Var> names = averages.VariablesToRestore(s);
  ASSERT_EQ(names.size(), 2);
  EXPECT_EQ(names.at("w/ExponentialMovingAverage").var_name(), "w");
  EXPECT_EQ(names.at("fixed").var_name(), "fixed");
  Saver saver(s, {.names = names});
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_EQ(saver.Restore(&session, prefix), absl::OkStatus());
  EXPECT_THAT(Floats(session.Run({w}).value()[0]), ElementsAre(1.5f, 7.0f));
  EXPECT_EQ(session.Run({fixed}).value()[0].scalar<float>(), 5);
}

TEST(ExponentialMovingAverage, MistakesAreNamed) {
  const auto message = [](auto build) {
    const Scope s = Scope::NewRoot();
    ExponentialMovingAverage averages(0.9);
    build(s, averages);
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  EXPECT_THAT(message([](const Scope& s, ExponentialMovingAverage& a) { a.Apply(s); }), HasSubstr("no trainable"));
  EXPECT_THAT(message([](const Scope& s, ExponentialMovingAverage& a) { a.Apply(s, {GlobalStep(s)}); }),
              HasSubstr("is int64, of which there are no averages"));
  EXPECT_THAT(message([](const Scope& s, ExponentialMovingAverage& a) {
                const Var w(s, "w", 1.0);
                a.Apply(s, {w, w});
              }),
              HasSubstr("w has an average already"));
}

}  // namespace
}  // namespace millrace
