// The networks of examples/resnet_cifar/resnet.h.
#include "examples/resnet_cifar/resnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

using ::testing::HasSubstr;

Output Images(const Scope& scope, int64_t n) {
  scope.SetRandomSeed(1);
  Tensor pixels(DType::kFloat, Shape({n, 32, 32, 3}));
  float value = 0;
  for (float& pixel : pixels.flat<float>()) pixel = std::sin(value += 0.37f);
  return ops::Const(scope, pixels);
}

int64_t Parameters(const Scope& scope) {
  int64_t count = 0;
  for (const Var& variable : TrainableVariables(scope)) count += variable.shape().num_elements();
  return count;
}

TEST(ResNet, HasAsManyParametersAsInThePaper) {
  for (const auto& [size, millions] :
       std::vector<std::pair<int, double>>{{20, 0.27}, {32, 0.46}, {44, 0.66}, {56, 0.85}}) {
    const Scope scope = Scope::NewRoot();
    const Output logits = ResNetLogits(scope, Images(scope, 2), true, {.size = size});
    ASSERT_TRUE(scope.ok()) << scope.status();
    EXPECT_EQ(logits.shape(), PartialShape({2, 10}));
    EXPECT_NEAR(static_cast<double>(Parameters(scope)) / 1e6, millions, 0.01) << size;
  }
  const Scope scope = Scope::NewRoot();
  ResNetLogits(scope, Images(scope, 2), true, {.size = 20});
  EXPECT_EQ(Parameters(scope), 272474);
}

TEST(ResNet, InferenceHasTheWeightsOfTrainingAndItsMovingAverages) {
  for (const int version : {1, 2}) {
    const Scope scope = Scope::NewRoot();
    const Output images = Images(scope, 4);
    const ResNetOptions options{.size = 20, .version = version, .weight_decay = 1e-3};
    ResNetLogits(scope.VariableScope("net"), images, true, options);
    const size_t variables = GlobalVariables(scope).size(), updates = UpdateOps(scope).size();
    const Output decay = losses::RegularizationLoss(scope);
    const Output inferred = ResNetLogits(scope.VariableScope("net", Reuse::kYes), images, false, options);
    ASSERT_TRUE(scope.ok()) << scope.status();
    EXPECT_EQ(GlobalVariables(scope).size(), variables);
    EXPECT_EQ(UpdateOps(scope).size(), updates);
    // A mean and a variance for each normalisation.
    EXPECT_EQ(updates, 2 * (version == 1 ? 21 : 19));
    const Output again = losses::RegularizationLoss(scope);
    const Operation init = GlobalVariablesInitializer(scope), update = Group(scope, UpdateOps(scope));
    ClientSession session = ClientSession::Create(scope).value();
    ASSERT_TRUE(session.Run(init).ok());
    const Tensors before = session.Run({inferred, decay, again}).value();
    ASSERT_TRUE(session.Run(update).ok());
    const Tensors after = session.Run({inferred, decay, again}).value();
    EXPECT_NE(before[0].data<float>()[0], after[0].data<float>()[0]);
    EXPECT_GT(after[1].scalar<float>(), 0);
    EXPECT_EQ(after[1].scalar<float>(), after[2].scalar<float>());
  }
}

TEST(ResNet, SizesAndVersionsThatDoNotExistAreErrors) {
  const auto error = [](const ResNetOptions& options) {
    const Scope scope = Scope::NewRoot();
    EXPECT_TRUE(ResNetLogits(scope, Images(scope, 1), true, options).empty());
    return std::string(scope.status().message());
  };
  EXPECT_THAT(error({.size = 34}), HasSubstr("no ResNet-34 for CIFAR"));
  EXPECT_THAT(error({.size = 2}), HasSubstr("no ResNet-2 "));
  EXPECT_THAT(error({.version = 3}), HasSubstr("no version 3"));
}

}  // namespace
}  // namespace millrace
