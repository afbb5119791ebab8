#include "millrace/api/initializers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// With the graph's seed 7.
std::vector<float> Values(const Initializer& initializer, const Shape& shape) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(7);
  const Tensors r = RunOnce(s, {initializer(s, shape, DType::kFloat)});
  return r.empty() ? std::vector<float>() : Floats(r[0]);
}

TEST(Initializers, GiveTensorFlowsNumbers) {
  const std::pair<std::vector<float>, std::vector<float>> pairs[] = {
      {Values(init::VarianceScaling(
                  {.scale = 2, .fan = init::Fan::kOut, .distribution = init::Distribution::kUniform, .seed = 3}),
              {3, 2}),
       {-0.3426416f, -0.4266425f, -0.6606292f, -1.4269478f, 0.8523673f, -0.1568991f}},
      {Values(init::VarianceScaling({.scale = 0.5,
                                     .fan = init::Fan::kAverage,
                                     .distribution = init::Distribution::kUntruncatedNormal,
                                     .seed = 3}),
              {2, 2, 2}),
       {0.3340032f, -0.3418121f, 0.2846712f, 0.4607918f, 0.0759802f, -0.2597407f, 0.3121115f, -0.2738441f}},
      {Values(init::LecunNormal({.seed = 3}), {3, 2}),
       {0.6200649f, -0.6345618f, 0.5284817f, 0.8554433f, -0.1435985f, -0.5283031f}},
      {Values(init::LecunUniform({.seed = 3}), {3, 2}),
       {-0.1978242f, -0.2463222f, -0.3814144f, -0.8238487f, 0.4921145f, -0.0905857f}},
      {Values(init::HeNormal({.seed = 3}), {3, 2}),
       {0.8769042f, -0.8974059f, 0.747386f, 1.2097795f, -0.2030789f, -0.7471334f}},
      {Values(init::GlorotNormal({.seed = 3}), {3, 2}),
       {0.6792471f, -0.6951277f, 0.5789227f, 0.9370912f, -0.1573043f, -0.5787271f}},
      {Values(init::Orthogonal({.gain = 1.5, .seed = 3}), {3, 2}),
       {1.1248775f, -0.8032159f, 0.9587338f, 1.1068714f, 0.2558911f, -0.6161818f}},
      {Values(init::Orthogonal({.seed = 3}), {2, 1, 3}),
       {0.7499183f, 0.6391559f, 0.1705941f, -0.5354773f, 0.7379142f, -0.4107879f}},
      {Values(init::UniformUnitScaling({.factor = 1.5, .seed = 3}), {3, 2}),
       {-0.2967364f, -0.3694832f, -0.5721216f, -1.2357731f, 0.7381718f, -0.1358786f}},
      {Values(init::Identity(2), {2, 3}), {2, 0, 0, 0, 2, 0}},
  };
  for (const auto& [got, expected] : pairs) EXPECT_THAT(got, Pointwise(FloatNear(2e-6f), expected));
}

TEST(Initializers, PartsOfTheIdentityAreItsParts) {
  const Scope s = Scope::NewRoot();
  const PartitionedVar w(s, "w", {3, 3}, init::Identity(), FixedSizePartitioner(2));
  EXPECT_THAT(Floats(RunOnce(s, {w.Value(s)})[0]), ::testing::ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1));
}

TEST(Initializers, MistakesAreNamed) {
  const auto message = [](const Initializer& initializer, const Shape& shape) {
    const Scope s = Scope::NewRoot();
    initializer(s.SubScope("net"), shape, DType::kFloat);
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  EXPECT_THAT(message(init::VarianceScaling({.scale = 0}), {2, 2}),
              HasSubstr("'net': the scale of VarianceScaling is 0"));
  EXPECT_THAT(message(init::Orthogonal(), {3}), HasSubstr("Orthogonal needs at least two dimensions, not [3]"));
  EXPECT_THAT(message(init::Identity(), {2, 2, 2}), HasSubstr("Identity needs two dimensions, not [2,2,2]"));
}

}  // namespace
}  // namespace millrace
