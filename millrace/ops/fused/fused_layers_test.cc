// What the fusion passes make of layers, against the same layers run as they are.
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

struct Outcome {
  std::vector<Tensor> results;
  std::vector<std::string> ops;  // that ran

  bool Has(const std::string& op) const { return std::find(ops.begin(), ops.end(), op) != ops.end(); }
};

// A graph under construction with its feeds and fetches.
class Layers {
 public:
  Layers() : b(&graph_) {}

  Endpoint Feed(const std::string& name, const Tensor& value) {
    feeds_.emplace_back(name, value);
    return b.Op("Placeholder", {}, {{"dtype", value.dtype()}, {"shape", PartialShape(value.shape())}}, name);
  }
  // A fetched node keeps its name; what is to be fused is looked at through another.
  void Fetch(Endpoint e) { fetches_.push_back(b.Op("Neg", {e}, {}, absl::StrCat("out", fetches_.size())).name()); }

  Outcome Run(bool passes, int threads = 2) {
    Outcome outcome;
    SessionOptions options{.intra_op_threads = threads};
    if (!passes) options.passes = PassOptions::None();
    auto session = Session::Create(options);
    EXPECT_TRUE(b.ok() && session.ok()) << b.status() << session.status();
    if (!b.ok() || !session.ok()) return outcome;
    EXPECT_TRUE((*session)->Extend(graph_).ok());
    RunOptions run;
    run.output_partition_graphs = true;
    RunMetadata metadata;
    const Status status = (*session)->Run(run, feeds_, fetches_, {}, &outcome.results, &metadata);
    EXPECT_TRUE(status.ok()) << status;
    for (const auto& partition : metadata.partition_graphs()) {
      for (const auto& node : partition.node()) outcome.ops.push_back(node.op());
    }
    return outcome;
  }

 private:
  Graph graph_;

 public:
  GraphBuilder b;

 private:
  std::vector<millrace::Feed> feeds_;
  std::vector<std::string> fetches_;
};

void ExpectSameResults(Layers& layers, float tolerance) {
  const Outcome plain = layers.Run(false), fused = layers.Run(true), alone = layers.Run(true, 1);
  ASSERT_EQ(plain.results.size(), fused.results.size());
  ASSERT_EQ(alone.results.size(), fused.results.size());
  for (size_t i = 0; i < plain.results.size(); ++i) {
    ExpectNear(fused.results[i], plain.results[i], tolerance);
    EXPECT_TRUE(SameBytes(fused.results[i], alone.results[i])) << "output " << i;
  }
}

struct NormCase {
  const char* name;
  Shape shape;
  const char* format;
  bool training, side;
};

class FusedBatchNormTest : public testing::TestWithParam<NormCase> {};

TEST_P(FusedBatchNormTest, GivesWhatItsPartsGive) {
  const NormCase& c = GetParam();
  const int64_t channels = c.format[1] == 'C' ? c.shape.dim(1) : c.shape.dim(3);
  Layers l;
  const Endpoint x = l.Feed("x", Noise(c.shape, 1)), scale = l.Feed("scale", Noise(Shape({channels}), 2)),
                 offset = l.Feed("offset", Noise(Shape({channels}), 3)), dy = l.Feed("dy", Noise(c.shape, 4));
  Tensor moments = Noise(Shape({channels}), 5);
  for (float& v : moments.flat<float>()) v = 1.5f + v;
  const Endpoint mean = l.Feed("mean", moments), variance = l.Feed("variance", moments);
  const AttrList attrs = {{"is_training", c.training}, {"data_format", c.format}, {"epsilon", 0.01f}};
  Node* norm = l.b.AddNode("FusedBatchNormV3", {x, scale, offset, mean, variance}, attrs);
  ASSERT_NE(norm, nullptr) << l.b.status();
  Endpoint z = norm->output(0);
  if (c.side) z = l.b.Op("AddV2", {l.Feed("side", Noise(c.shape, 6)), z});
  const Endpoint y = l.b.Op("Relu", {z});
  const Endpoint dz = l.b.Op("ReluGrad", {dy, y});
  const Endpoint m = c.training ? norm->output(3) : mean, v = c.training ? norm->output(4) : variance;
  Node* grad = l.b.AddNode("FusedBatchNormGradV3", {dz, x, scale, m, v, norm->output(5)}, attrs);
  ASSERT_NE(grad, nullptr) << l.b.status();
  l.Fetch(y);
  if (c.side) l.Fetch(dz);
  for (int i = 0; i < 3; ++i) l.Fetch(grad->output(i));
  for (int i = 1; i < 3; ++i) l.Fetch(norm->output(i));
  ExpectSameResults(l, 1e-4f);
  const Outcome fused = l.Run(true);
  EXPECT_TRUE(fused.Has("_FusedBatchNormEx")) << testing::PrintToString(fused.ops);
  EXPECT_TRUE(fused.Has("_FusedBatchNormGradEx")) << testing::PrintToString(fused.ops);
  EXPECT_FALSE(fused.Has("ReluGrad")) << testing::PrintToString(fused.ops);
}

INSTANTIATE_TEST_SUITE_P(Cases, FusedBatchNormTest,
                         testing::Values(NormCase{"relu", Shape({5, 9, 7, 16}), "NHWC", true, false},
                                         NormCase{"shortcut", Shape({5, 9, 7, 16}), "NHWC", true, true},
                                         NormCase{"odd_channels", Shape({3, 40, 41, 5}), "NHWC", true, true},
                                         NormCase{"many_channels", Shape({2, 20, 21, 130}), "NHWC", true, false},
                                         NormCase{"planes", Shape({5, 6, 19, 17}), "NCHW", true, true},
                                         NormCase{"inference", Shape({5, 9, 7, 16}), "NHWC", false, true},
                                         NormCase{"inference_planes", Shape({2, 3, 9, 7}), "NCHW", false, false}),
                         [](const auto& info) { return info.param.name; });

TEST(FusedBatchNorm, StaysApartFromAShortcutThatNeedsItsMoments) {
  Layers l;
  const Shape shape({2, 4, 4, 8});
  const Endpoint x = l.Feed("x", Noise(shape)), scale = l.Feed("scale", Noise(Shape({8}), 2));
  Node* norm = l.b.AddNode("FusedBatchNormV3", {x, scale, scale, scale, scale}, {});
  ASSERT_NE(norm, nullptr) << l.b.status();
  const Endpoint side = l.b.Op("AddV2", {x, norm->output(1)});
  l.Fetch(l.b.Op("Relu", {l.b.Op("AddV2", {norm->output(0), side})}));
  ExpectSameResults(l, 1e-5f);
}

struct ConvCase {
  const char* name;
  Shape input, filter;
  int64_t stride;
  const char* activation;
};

class FusedConvTest : public testing::TestWithParam<ConvCase> {};

TEST_P(FusedConvTest, GivesWhatItsPartsGive) {
  const ConvCase& c = GetParam();
  Layers l;
  const Endpoint x = l.Feed("x", Noise(c.input, 1)), filter = l.Feed("filter", Noise(c.filter, 2)),
                 bias = l.Feed("bias", Noise(Shape({c.filter.dim(3)}), 3));
  Endpoint y =
      l.b.Op("Conv2D", {x, filter}, {{"strides", std::vector<int64_t>{1, c.stride, c.stride, 1}}, {"padding", "SAME"}});
  y = l.b.Op("BiasAdd", {y, bias});
  if (*c.activation != 0) y = l.b.Op(c.activation, {y});
  l.Fetch(y);
  ExpectSameResults(l, 1e-5f);
  EXPECT_TRUE(l.Run(true).Has("_FusedConv2D"));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, FusedConvTest,
    testing::Values(ConvCase{"small", Shape({2, 5, 6, 3}), Shape({3, 3, 3, 5}), 1, "Relu"},
                    ConvCase{"tiles", Shape({8, 13, 17, 16}), Shape({3, 3, 16, 24}), 1, "Relu"},
                    ConvCase{"tiles_of_five", Shape({4, 13, 15, 16}), Shape({5, 5, 16, 24}), 1, ""},
                    ConvCase{"elu", Shape({3, 9, 9, 8}), Shape({1, 1, 8, 6}), 1, "Elu"},
                    ConvCase{"rows", Shape({1, 67, 65, 8}), Shape({7, 7, 8, 32}), 2, "Relu"},
                    ConvCase{"rows_of_two", Shape({2, 56, 56, 32}), Shape({1, 1, 32, 64}), 1, "Tanh"}),
    [](const auto& info) { return info.param.name; });

class ConvWithMomentsTest : public testing::TestWithParam<ConvCase> {};

TEST_P(ConvWithMomentsTest, NormalisesAsItsPartsDo) {
  const ConvCase& c = GetParam();
  const Shape vector({c.filter.dim(3)});
  Tensor images = Noise(c.input, 1);
  // Far from zero, sums of squares alone would have no digits left for the variance.
  for (float& pixel : images.flat<float>()) pixel += 30;
  Layers l;
  const Endpoint x = l.Feed("x", images), filter = l.Feed("filter", Noise(c.filter, 2)),
                 scale = l.Feed("scale", Noise(vector, 3)), offset = l.Feed("offset", Noise(vector, 4));
  const Endpoint z =
      l.b.Op("Conv2D", {x, filter}, {{"strides", std::vector<int64_t>{1, c.stride, c.stride, 1}}, {"padding", "SAME"}});
  Node* norm = l.b.AddNode("FusedBatchNormV3", {z, scale, offset, scale, scale}, {{"is_training", true}});
  ASSERT_NE(norm, nullptr) << l.b.status();
  l.Fetch(*c.activation == 0 ? norm->output(0) : l.b.Op(c.activation, {norm->output(0)}));
  for (int i = 1; i < 5; ++i) l.Fetch(norm->output(i));
  l.Fetch(z);  // another consumer
  ExpectSameResults(l, 1e-4f);
  EXPECT_TRUE(l.Run(true).Has("_Conv2DWithMoments"));
}

INSTANTIATE_TEST_SUITE_P(Cases, ConvWithMomentsTest,
                         testing::Values(ConvCase{"tiles", Shape({8, 13, 17, 16}), Shape({3, 3, 16, 32}), 1, "Relu"},
                                         ConvCase{"whole_tiles", Shape({16, 16, 16, 16}), Shape({3, 3, 16, 16}), 1, ""},
                                         ConvCase{"narrow_tiles", Shape({8, 12, 17, 24}), Shape({3, 3, 24, 8}), 1, ""},
                                         ConvCase{"strided", Shape({5, 9, 9, 8}), Shape({3, 3, 8, 6}), 2, "Relu"}),
                         [](const auto& info) { return info.param.name; });

class FusedConvGradientTest : public testing::TestWithParam<ConvCase> {};

// With AddN and with AddV2, the convolution first and second: bit by bit.
TEST_P(FusedConvGradientTest, GivesWhatItsPartsGive) {
  const ConvCase& c = GetParam();
  const Shape output({c.input.dim(0), (c.input.dim(1) + c.stride - 1) / c.stride,
                      (c.input.dim(2) + c.stride - 1) / c.stride, c.filter.dim(3)});
  Layers l;
  const Endpoint filter = l.Feed("filter", Noise(c.filter, 1));
  const Endpoint sizes =
      l.b.Const(Tensor::FromVector(std::vector<int32_t>(c.input.dims().begin(), c.input.dims().end())));
  const auto gradient = [&](const char* name, uint64_t seed) {
    return l.b.Op("Conv2DBackpropInput", {sizes, filter, l.Feed(name, Noise(output, seed))},
                  {{"strides", std::vector<int64_t>{1, c.stride, c.stride, 1}}, {"padding", "SAME"}});
  };
  // One addend is a feed, whose memory must stay as it is, the other may be written over.
  const Endpoint fed = l.Feed("addend", Noise(c.input, 3)), computed = l.b.Op("Exp", {fed});
  l.Fetch(l.b.Op("AddN", {gradient("dy", 2), fed}));
  l.Fetch(l.b.Op(c.activation, {computed, gradient("other_dy", 4)}));
  l.Fetch(fed);
  const Outcome plain = l.Run(false), fused = l.Run(true);
  ASSERT_EQ(plain.results.size(), fused.results.size());
  for (size_t i = 0; i < plain.results.size(); ++i) {
    EXPECT_TRUE(SameBytes(fused.results[i], plain.results[i])) << "output " << i;
  }
  ExpectSameResults(l, 0);
  EXPECT_TRUE(fused.Has("_FusedConv2DBackpropInput")) << testing::PrintToString(fused.ops);
  EXPECT_FALSE(fused.Has("AddN")) << testing::PrintToString(fused.ops);
}

INSTANTIATE_TEST_SUITE_P(Cases, FusedConvGradientTest,
                         testing::Values(ConvCase{"tiles", Shape({8, 13, 17, 16}), Shape({3, 3, 16, 32}), 1, "AddV2"},
                                         ConvCase{"narrow_tiles", Shape({8, 13, 17, 24}), Shape({3, 3, 24, 8}), 1,
                                                  "AddV2"},
                                         ConvCase{"strided", Shape({5, 9, 9, 8}), Shape({3, 3, 8, 6}), 2, "Add"},
                                         ConvCase{"pixels", Shape({3, 9, 9, 8}), Shape({1, 1, 8, 6}), 2, "AddN"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
