// Fused element-wise ops give the bits that the ops give one by one, under the same names.
#include <cmath>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/ops/fused/fused_activation.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/reduce.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

Tensor FusedNoise(Shape shape, unsigned seed) {
  Tensor t(DType::kFloat, std::move(shape));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : t.flat<float>()) x = normal(random);
  return t;
}

class FusedTest : public ::testing::Test {
 protected:
  FusedTest() : b_(&graph_) {}

  Endpoint Placeholder(DType dtype, PartialShape shape, const std::string& name) {
    return b_.Op("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, name);
  }

  // Runs without rewrites, and with them on one thread and on several; all must give the same bytes. Returns them.
  Tensor Same(const std::vector<Feed>& feeds, Endpoint fetch, int least_fused = 1) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    std::vector<Tensor> results;
    for (int variant = 0; variant < 3; ++variant) {
      SessionOptions options;
      options.intra_op_threads = variant == 2 ? 3 : 1;
      if (variant == 0) options.passes = PassOptions::None();
      auto session = Session::Create(options).value();
      EXPECT_TRUE(session->Extend(graph_).ok());
      RunMetadata metadata;
      std::vector<Tensor> out;
      const Status status = session->Run({.trace = true}, feeds, {fetch.name()}, {}, &out, &metadata);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) return Tensor();
      results.push_back(out[0]);
      int fused = 0;
      for (const auto& device : metadata.step_stats().dev_stats()) {
        for (const auto& node : device.node_stats()) {
          fused += node.timeline_label().find("_FusedElementwise") != std::string::npos;
        }
      }
      if (variant > 0) {
        EXPECT_GE(fused, least_fused);
      }
      EXPECT_EQ(results[variant].shape(), results[0].shape());
      EXPECT_EQ(std::memcmp(results[variant].raw_data(), results[0].raw_data(), results[0].TotalBytes()), 0)
          << "variant " << variant;
    }
    return results[0];
  }

  Endpoint Mean(Endpoint x, bool keep = true) { return b_.Op("Mean", {x, b_.Ints({-1})}, {{"keep_dims", keep}}); }
  Endpoint LayerNorm(Endpoint x, int64_t columns) {
    const Endpoint centered = b_.Sub(x, Mean(x));
    const Endpoint variance = Mean(b_.Op("Square", {centered}));
    const Endpoint scale = b_.Op("Rsqrt", {b_.Add(variance, b_.Scalar<float>(1e-5f))});
    const Endpoint gamma = b_.Const(FusedNoise(Shape({columns}), 7)), beta = b_.Const(FusedNoise(Shape({columns}), 8));
    return b_.Add(b_.Mul(b_.Mul(centered, scale), gamma), beta);
  }

  Graph graph_;
  GraphBuilder b_;
};

TEST_F(FusedTest, LayerNormIsOneNodeOfTheSameBits) {
  for (const int64_t columns : {2, 7, 64, 1000, 5000}) {
    Graph graph;
    const Endpoint x = Placeholder(DType::kFloat, {-1, columns}, "x");
    Same({{x.name(), FusedNoise(Shape({37, columns}), 1)}}, LayerNorm(x, columns));
  }
}

TEST_F(FusedTest, GeluOfAnyShapeHasTheSameBits) {
  const Endpoint x = Placeholder(DType::kFloat, {-1, -1, -1}, "x");
  const Endpoint inner = b_.Mul(b_.Scalar<float>(0.8f),
                                b_.Add(x, b_.Mul(b_.Scalar<float>(0.04f), b_.Op("Pow", {x, b_.Scalar<float>(3)}))));
  const Endpoint y = b_.Mul(b_.Mul(b_.Scalar<float>(0.5f), x), b_.Add(b_.Scalar<float>(1), b_.Op("Tanh", {inner})));
  const Endpoint z = b_.Mul(y, b_.Op("Erf", {x}));
  for (const Shape& shape : {Shape({3, 5, 7}), Shape({1, 1, 1}), Shape({0, 4, 4}), Shape({40, 50, 61})}) {
    Same({{x.name(), FusedNoise(shape, 2)}}, z);
  }
}

TEST_F(FusedTest, FunctionsTakeInWhatIsAroundThem) {
  const Endpoint x = Placeholder(DType::kFloat, {-1, -1}, "x"), w = Placeholder(DType::kFloat, {-1, -1}, "w");
  Tensor noise = FusedNoise(Shape({9, 333}), 9);
  const float edges[] = {0, -0.0f, 1e-40f, -1e-30f, 3.9f, 3.93f, -9.1f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN};
  std::copy(std::begin(edges), std::end(edges), noise.data<float>());
  const auto scalar = [&](float v) { return b_.Scalar<float>(v); };
  for (const char* op : {"Erf", "Tanh"}) {
    // Not Neg: of two that are no numbers, which one's sign comes out of a product is the compiler's choice.
    for (const Endpoint in : {b_.Op("Square", {x}), b_.Mul(x, scalar(0.7f)), b_.Mul(scalar(0.7f), x),
                              b_.Div(x, scalar(1.4f)), b_.Div(scalar(1.4f), x), b_.Mul(x, w)}) {
      const Endpoint f = b_.Op(op, {in});
      const Endpoint sum = b_.Add(scalar(1), f);
      for (const Endpoint y : {f, sum, b_.Add(f, w), b_.Mul(sum, w), b_.Mul(x, sum),
                               b_.Mul(b_.Mul(scalar(0.5f), x), sum), b_.Mul(sum, b_.Mul(w, scalar(0.5f))),
                               b_.Mul(b_.Mul(w, x), sum), b_.Mul(sum, scalar(0.5f)), b_.Mul(b_.Mul(sum, sum), f)}) {
        Same({{x.name(), noise}, {w.name(), FusedNoise(Shape({9, 333}), 10)}}, b_.Neg(y));
      }
    }
  }
}

TEST_F(FusedTest, ShapesThatDoNotMeetInRowsRunOneByOne) {
  const Endpoint x = Placeholder(DType::kFloat, {-1, -1}, "x"), y = Placeholder(DType::kFloat, {-1, -1}, "y");
  const Endpoint z = b_.Op("Exp", {b_.Mul(b_.Neg(x), y)});
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{Shape({8, 9}), Shape({8, 9})},
                                                                 {Shape({8, 1}), Shape({1, 9})},
                                                                 {Shape({8, 9}), Shape({8, 1})},
                                                                 {Shape({1, 9}), Shape({8, 9})},
                                                                 {Shape({8, 9}), Shape({1, 1})}}) {
    Same({{x.name(), FusedNoise(a, 3)}, {y.name(), FusedNoise(b, 4)}}, z);
  }
}

TEST_F(FusedTest, TypesMayChangeOnTheWay) {
  const Endpoint x = Placeholder(DType::kFloat, {-1, 100}, "x");
  const Endpoint mask = b_.Op("Greater", {x, Mean(x)});
  const Endpoint count = b_.Cast(mask, DType::kDouble);
  const Endpoint chosen = b_.Op("SelectV2", {mask, b_.Op("Exp", {x}), b_.Scalar<float>(-1)});
  Same({{x.name(), FusedNoise(Shape({60, 100}), 5)}}, b_.Mul(b_.Cast(chosen, DType::kDouble), b_.Add(count, count)));
}

TEST_F(FusedTest, AReductionAtTheEndDropsItsDimension) {
  const Endpoint x = Placeholder(DType::kFloat, {-1, 3, 100}, "x");
  const Tensor kept = Same({{x.name(), FusedNoise(Shape({20, 3, 100}), 5)}}, Mean(b_.Op("Square", {x}), false));
  EXPECT_EQ(kept.shape(), Shape({20, 3}));
  Same({{x.name(), FusedNoise(Shape({20, 3, 100}), 5)}}, b_.Op("Sqrt", {Mean(b_.Op("Square", {x}))}));
}

TEST_F(FusedTest, AnErrorNamesTheNodeOfTheUsers) {
  const Endpoint x = Placeholder(DType::kInt32, {100}, "x"), y = Placeholder(DType::kInt32, {100}, "y");
  const Endpoint rest = b_.Op("FloorMod", {b_.Add(x, y), y}, {}, "the_rest");
  const Endpoint z = b_.Add(b_.Op("Square", {rest}), x);
  Tensor ones(DType::kInt32, Shape({100})), zeros(DType::kInt32, Shape({100}));
  std::fill_n(ones.data<int32_t>(), 100, 1);
  std::fill_n(zeros.data<int32_t>(), 100, 0);
  auto session = Session::Create({}).value();
  ASSERT_TRUE(session->Extend(graph_).ok());
  const Status status = session->Run({{x.name(), ones}, {y.name(), zeros}}, {z.name()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node the_rest}}"));
}

TEST_F(FusedTest, WhatIsFetchedOrUsedElsewhereStays) {
  const Endpoint x = Placeholder(DType::kFloat, {100}, "x");
  const Endpoint e = b_.Op("Exp", {x}), n = b_.Neg(e), s = b_.Op("Square", {n});
  const Endpoint unique = b_.Op("Unique", {e});
  auto session = Session::Create({}).value();
  ASSERT_TRUE(session->Extend(graph_).ok());
  const auto out = session->Run({{x.name(), FusedNoise(Shape({100}), 1)}}, {n.name(), s.name(), unique.name()});
  ASSERT_TRUE(out.ok()) << out.status();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ((*out)[1].data<float>()[i], (*out)[0].data<float>()[i] * (*out)[0].data<float>()[i]);
    EXPECT_EQ((*out)[2].data<float>()[i], -(*out)[0].data<float>()[i]);
  }
}

// The type that a test gives an input of that declaration.
DType TypeOf(const OpSchema& op, const OpArg& arg) {
  if (arg.type != DType::kInvalid) return arg.type;
  const std::vector<DType>& allowed = op.FindAttr(arg.type_attr)->allowed_types;
  const bool any = allowed.empty() || std::find(allowed.begin(), allowed.end(), DType::kFloat) != allowed.end();
  return any ? DType::kFloat : allowed[0];
}

TEST(FusableOps, HaveTheLoopsThatFusionRuns) {
  const std::unique_ptr<Device> device = NewCpuDevice({.intra_op_threads = 1});
  int count = 0;
  for (const OpSchema* op : OpRegistry::Global().All()) {
    const bool reduces = op->Has(OpTrait::kRowReduction);
    if (!op->Has(OpTrait::kElementwise) && !reduces) continue;
    SCOPED_TRACE(op->name);
    ++count;
    Graph graph;
    GraphBuilder b(&graph);
    std::vector<Endpoint> inputs;
    for (const OpArg& arg : op->inputs) {
      inputs.push_back(b.Op("Placeholder", {}, {{"dtype", TypeOf(*op, arg)}, {"shape", PartialShape({2})}}));
    }
    if (reduces) inputs[1] = b.Ints({0});
    const bool is_cast = op->name == "Cast";
    const Endpoint y = is_cast ? b.Cast(inputs[0], DType::kDouble) : b.Op(op->name, inputs);
    ASSERT_TRUE(b.ok()) << b.status();
    const auto kernel = KernelRegistry::Global().Create(*y.node, device.get());
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    if (reduces) {
      EXPECT_NE(dynamic_cast<const ReduceKernel*>(kernel->get()), nullptr);
    } else if (op->inputs.size() == 3) {
      EXPECT_EQ(op->name, "SelectV2") << "has three inputs, and FusedProgram has no such loop";
    } else {
      EXPECT_TRUE(dynamic_cast<const UnaryKernel*>(kernel->get()) != nullptr ||
                  dynamic_cast<const BinaryKernel*>(kernel->get()) != nullptr);
    }
  }
  EXPECT_GT(count, 60);
}

TEST(FusableOps, ActivationsAreKnownToTheLayersThatTakeThemIn) {
  for (const OpSchema* op : OpRegistry::Global().All()) {
    if (!op->Has(OpTrait::kActivation)) continue;
    EXPECT_TRUE(ParseActivation(op->name).ok()) << op->name;
  }
}

TEST(ErfTest, IsAccurateAndKeepsWhatIsNoNumber) {
  Graph graph;
  GraphBuilder b(&graph);
  std::vector<float> values;
  for (float x = -6; x <= 6; x += 0.001f) values.push_back(x);
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  const Endpoint y = b.Op("Erf", {b.Const(Tensor::FromVector(values))});
  auto session = Session::Create({}).value();
  ASSERT_TRUE(session->Extend(graph).ok());
  const auto out = session->Run({y.name()});
  ASSERT_TRUE(out.ok()) << out.status();
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    EXPECT_NEAR((*out)[0].data<float>()[i], std::erf(values[i]), 5e-7) << values[i];
  }
  EXPECT_TRUE(std::isnan((*out)[0].data<float>()[values.size() - 1]));
}

}  // namespace
}  // namespace millrace
