#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

class TrainingTest : public OpSessionTest {
 protected:
  // A variable of n elements, element i being i * factor.
  Endpoint Ramp(const std::string& name, int64_t n, float factor, bool handle) {
    const PartialShape shape({n});
    const Endpoint v =
        handle ? b_.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", shape}, {"shared_name", name}}, name)
               : b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", shape}}, name);
    Node* assign = b_.AddNode(handle ? "AssignVariableOp" : "Assign", {v, b_.Const(RampTensor(n, factor))});
    EXPECT_TRUE(Run(assign).ok());
    return v;
  }
  static Tensor RampTensor(int64_t n, float factor) {
    Tensor t(DType::kFloat, Shape({n}));
    for (int64_t i = 0; i < n; ++i) t.data<float>()[i] = static_cast<float>(i % 100) * factor;
    return t;
  }
  Endpoint Read(Endpoint v) {
    return v.dtype() == DType::kResource ? b_.Op("ReadVariableOp", {v}, {{"dtype", DType::kFloat}})
                                         : b_.Op("Identity", {v});
  }
  Endpoint Scalar(float x) { return b_.Scalar<float>(x); }
};

TEST_F(TrainingTest, ReferencesAndHandlesTakeTheSameSteps) {
  constexpr int64_t kSize = 100000;  // several pieces
  const Endpoint grad = b_.Const(RampTensor(kSize, 0.25f));
  std::vector<std::vector<float>> results;
  for (const bool handle : {false, true}) {
    const std::string suffix = handle ? "h" : "r";
    const Endpoint v = Ramp("v" + suffix, kSize, 1, handle), m = Ramp("m" + suffix, kSize, 0, handle),
                   s = Ramp("s" + suffix, kSize, 0, handle);
    Node* adam = b_.AddNode(
        handle ? "ResourceApplyAdam" : "ApplyAdam",
        {v, m, s, Scalar(0.9f), Scalar(0.999f), Scalar(0.1f), Scalar(0.9f), Scalar(0.999f), Scalar(1e-7f), grad});
    ASSERT_TRUE(b_.ok()) << b_.status();
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(Run(adam).ok());
    results.push_back(Values<float>(Read(v)));
  }
  EXPECT_EQ(results[0], results[1]);
  // The first step of Adam is as long as the learning rate, whatever the gradient.
  EXPECT_NE(results[0][1], 1.0f);
  EXPECT_EQ(results[0][0], 0.0f);
}

TEST_F(TrainingTest, SparseStepOfAllRowsIsTheDenseStep) {
  const Endpoint dense = Ramp("dense", 6, 1, true), dense_slot = Ramp("dense_slot", 6, 0.5f, true);
  const Endpoint sparse = Ramp("sparse", 6, 1, true), sparse_slot = Ramp("sparse_slot", 6, 0.5f, true);
  const Tensor grad = RampTensor(6, 0.125f);
  const Endpoint g = b_.Const(grad);
  Node* all =
      b_.AddNode("ResourceApplyMomentum", {dense, dense_slot, Scalar(0.5f), g, Scalar(0.9f)}, {{"use_nesterov", true}});
  Node* rows = b_.AddNode("ResourceSparseApplyMomentum",
                          {sparse, sparse_slot, Scalar(0.5f), g, b_.Ints({0, 1, 2, 3, 4, 5}), Scalar(0.9f)},
                          {{"use_nesterov", true}});
  ASSERT_TRUE(Run(all).ok());
  ASSERT_TRUE(Run(rows).ok());
  EXPECT_THAT(Values<float>(Read(sparse)), Pointwise(FloatNear(1e-6f), Values<float>(Read(dense))));
  EXPECT_THAT(Values<float>(Read(sparse_slot)), Pointwise(FloatNear(1e-6f), Values<float>(Read(dense_slot))));
}

TEST_F(TrainingTest, SparseKerasMomentumIsTheDenseOne) {
  const Endpoint dense = Ramp("dense", 4, 1, true), dense_slot = Ramp("dense_slot", 4, 0.5f, true);
  const Endpoint sparse = Ramp("sparse", 4, 1, true), sparse_slot = Ramp("sparse_slot", 4, 0.5f, true);
  const Endpoint g = b_.Const(RampTensor(4, 0.125f));
  ASSERT_TRUE(Run(b_.AddNode("ResourceApplyKerasMomentum", {dense, dense_slot, Scalar(0.5f), g, Scalar(0.9f)})).ok());
  ASSERT_TRUE(Run(b_.AddNode("ResourceSparseApplyKerasMomentum",
                             {sparse, sparse_slot, Scalar(0.5f), g, b_.Ints({0, 1, 2, 3}), Scalar(0.9f)}))
                  .ok());
  EXPECT_THAT(Values<float>(Read(sparse)), Pointwise(FloatNear(1e-6f), Values<float>(Read(dense))));
}

TEST_F(TrainingTest, AmsgradNeverForgetsALargeGradient) {
  const Endpoint v = Ramp("v", 2, 0, true), m = Ramp("m", 2, 0, true), s = Ramp("s", 2, 0, true),
                 most = Ramp("most", 2, 0, true);
  const auto step = [&](float gradient) {
    return b_.AddNode("ResourceApplyAdamWithAmsgrad",
                      {v, m, s, most, Scalar(0.5f), Scalar(0.5f), Scalar(0.1f), Scalar(0.5f), Scalar(0.5f), Scalar(0),
                       b_.Const(Tensor::Of<float>({gradient, gradient}))});
  };
  ASSERT_TRUE(Run(step(8)).ok());
  const std::vector<float> first = Values<float>(Read(most));
  EXPECT_THAT(first, ElementsAre(32, 32));  // half of the square
  ASSERT_TRUE(Run(step(1)).ok());
  EXPECT_EQ(Values<float>(Read(most)), first);
  EXPECT_THAT(Values<float>(Read(s)), ElementsAre(16.5f, 16.5f));
  // Both steps by the mean gradient (4, then 2.5) over the root of 32.
  const float rate = 0.1f * std::sqrt(0.5f) / 0.5f;
  EXPECT_NEAR(Values<float>(Read(v))[0], -rate * (4 + 2.5f) / std::sqrt(32.f), 1e-6f);
}

TEST_F(TrainingTest, GradientOfTheWrongShapeIsRefusedAndChangesNothing) {
  const Endpoint v = Ramp("v", 3, 1, false);
  Node* bad =
      graph_
          .AddNode({.name = "bad", .op = "ApplyGradientDescent", .inputs = {v, Scalar(1), b_.Const(RampTensor(4, 1))}})
          .value();
  EXPECT_EQ(Run(bad).code(), absl::StatusCode::kInvalidArgument);
  Node* worse = graph_
                    .AddNode({.name = "worse",
                              .op = "ApplyGradientDescent",
                              .inputs = {v, b_.Const(RampTensor(3, 1)), b_.Const(RampTensor(3, 1))}})
                    .value();
  EXPECT_EQ(Run(worse).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Values<float>(Read(v)), ElementsAre(0, 1, 2));
}

TEST_F(TrainingTest, SparseIndexOutsideIsRefusedBeforeAnythingChanges) {
  const Endpoint v = Ramp("v", 3, 1, true), slot = Ramp("slot", 3, 1, true);
  Node* bad =
      b_.AddNode("ResourceSparseApplyAdagrad", {v, slot, Scalar(1), b_.Const(RampTensor(2, 1)), b_.Ints({1, -1})});
  EXPECT_EQ(Run(bad).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Values<float>(Read(v)), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace millrace
