#include "millrace/api/convolutions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using layers::Padding;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// 3 i modulo `modulus`, minus `offset`: numbers that a wrong order would show.
Tensor Iota(const Shape& shape, int modulus, int offset) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) values.push_back(static_cast<float>(i * 3 % modulus - offset));
  return Tensor::FromSpan<float>(values, shape);
}
Output X(const Scope& s, const Shape& shape) { return ops::Const(s, Iota(shape, 7, 3)); }
Initializer Weights() {
  return [](const Scope& s, const Shape& shape, DType) { return ops::Const(s, Iota(shape, 5, 2)); };
}

struct Case {
  const char* name;
  Output (*build)(const Scope& s);
  Shape shape;
  std::vector<float> expected;  // by TensorFlow's ops
};

TEST(Convolutions, AreTensorFlows) {
  const Case cases[] = {
      {"conv1d strides",
       [](const Scope& s) {
         return layers::Conv1D(s, X(s, {1, 6, 2}), 2, 3,
                               {.strides = {2}, .padding = Padding::kSame, .kernel_initializer = Weights()});
       },
       {1, 3, 2},
       {13, -10, -11, 2, -1, 6}},
      {"conv1d dilations",
       [](const Scope& s) {
         return layers::Conv1D(s, X(s, {1, 6, 2}), 2, 3, {.dilations = {2}, .kernel_initializer = Weights()});
       },
       {1, 2, 2},
       {-2, -2, -14, 4}},
      {"conv3d",
       [](const Scope& s) {
         return layers::Conv3D(s, X(s, {1, 2, 3, 3, 2}), 1, {2, 2, 2},
                               {.strides = {1, 2, 1}, .padding = Padding::kSame, .kernel_initializer = Weights()});
       },
       {1, 2, 2, 3, 1},
       {6, -13, -7, 8, 0, -5, -20, -4, 3, -13, -13, -5}},
      {"conv2d_transpose valid",
       [](const Scope& s) {
         return layers::Conv2DTranspose(s, X(s, {1, 3, 4, 2}), 1, {3, 2},
                                        {.strides = {2, 2}, .kernel_initializer = Weights()});
       },
       {1, 7, 8, 1},
       {6,  3,  -7, -5, -6, -6, -5, -7, 0,  -3, 2,  4,  4, 4, 6, 4, -3, 12, 10, -2, 9, -2, 8, -2, -6, -3, -4, -3,
        -2, -3, 0,  -3, -7, -2, -8, -2, -9, -2, -3, 12, 2, 4, 4, 4, 6,  4,  -6, -3, 6, -7, 4, -6, 2,  -5, 0,  3}},
      {"conv2d_transpose same",
       [](const Scope& s) {
         return layers::Conv2DTranspose(
             s, X(s, {1, 3, 4, 2}), 1, {3, 2},
             {.strides = {1, 2}, .padding = Padding::kSame, .kernel_initializer = Weights()});
       },
       {1, 3, 8, 1},
       {3, 3, 6, 9, 9, 8, 12, 7, -19, -2, -4, -16, -3, -16, 5, -2, 2, 7, 2, 8, 2, 9, -12, 3}},
      {"conv3d_transpose",
       [](const Scope& s) {
         const Output part = ops::Slice(s, X(s, {1, 2, 3, 3, 2}), {0, 0, 0, 0, 0}, {1, 1, 2, 2, 2});
         return layers::Conv3DTranspose(s, part, 1, {1, 2, 2}, {.strides = {1, 1, 2}, .kernel_initializer = Weights()});
       },
       {1, 1, 3, 4, 1},
       {6, 3, -7, -5, -5, -10, 5, 10, 6, 4, -6, -3}},
      {"separable_conv2d valid",
       [](const Scope& s) {
         return layers::SeparableConv2D(
             s, X(s, {1, 3, 4, 2}), 2, {2, 2},
             {.depth_multiplier = 2, .depthwise_initializer = Weights(), .pointwise_initializer = Weights()});
       },
       {1, 2, 3, 2},
       {-3, -1, 17, -6, 16, -11, -7, 7, -8, 2, -23, 11}},
      {"separable_conv2d same",
       [](const Scope& s) {
         return layers::SeparableConv2D(s, X(s, {1, 3, 4, 2}), 1, {2, 2},
                                        {.strides = {2, 2},
                                         .padding = Padding::kSame,
                                         .depthwise_initializer = Weights(),
                                         .pointwise_initializer = Weights()});
       },
       {1, 2, 2, 1},
       {-14, 6, 11, 7}},
      {"separable_conv1d",
       [](const Scope& s) {
         return layers::SeparableConv1D(s, X(s, {1, 6, 2}), 1, 3,
                                        {.strides = {2},
                                         .depth_multiplier = 2,
                                         .depthwise_initializer = Weights(),
                                         .pointwise_initializer = Weights()});
       },
       {1, 2, 1},
       {-34, 19}},
      {"max_pool1d",
       [](const Scope& s) {
         return layers::MaxPool1D(s, X(s, {1, 6, 2}), 2);
       },
       {1, 3, 2},
       {3, 0, 2, -2, 0, 3}},
      {"avg_pool1d",
       [](const Scope& s) {
         return layers::AvgPool1D(s, X(s, {1, 6, 2}), 3, {.strides = {{2}}, .padding = Padding::kSame});
       },
       {1, 3, 2},
       {0.666667f, -1, 1, -0.666667f, -0.5f, 2.5f}},
      {"max_pool3d",
       [](const Scope& s) {
         return layers::MaxPool3D(s, X(s, {1, 2, 3, 3, 2}), {2, 2, 2}, {.padding = Padding::kSame});
       },
       {1, 1, 2, 2, 2},
       {3, 3, 2, 3, 3, 1, 3, -1}},
      {"avg_pool3d",
       [](const Scope& s) {
         return layers::AvgPool3D(s, X(s, {1, 2, 3, 3, 2}), {1, 2, 3}, {.strides = {{1, 1, 1}}});
       },
       {1, 2, 2, 1, 2},
       {0.333333f, -0.166667f, -0.333333f, 0.333333f, -0.5f, 0.166667f, 0, -0.5f}},
  };
  for (const Case& c : cases) {
    const Scope s = Scope::NewRoot();
    const Output y = c.build(s);
    ASSERT_TRUE(s.ok()) << c.name << ": " << s.status();
    EXPECT_EQ(y.shape(), PartialShape(c.shape)) << c.name;
    const Tensors r = RunOnce(s, {y});
    ASSERT_EQ(r.size(), 1) << c.name;
    EXPECT_EQ(r[0].shape(), c.shape) << c.name;
    EXPECT_THAT(Floats(r[0]), Pointwise(FloatNear(1e-5), c.expected)) << c.name;
  }
}

TEST(Convolutions, VariablesAreThoseOfTfLayers) {
  const Scope s = Scope::NewRoot();
  const Output sequence = X(s, {1, 6, 2}), image = X(s, {1, 3, 4, 2}), volume = X(s, {1, 2, 3, 3, 2});
  layers::Conv1D(s, sequence, 5, 3);
  layers::Conv3D(s, volume, 5, {1, 2, 3});
  layers::Conv2DTranspose(s, image, 5, {2, 3});
  layers::Conv3DTranspose(s.WithOpName("up"), volume, 5, {1, 2, 3}, {.use_bias = false});
  layers::SeparableConv1D(s, sequence, 5, 3, {.depth_multiplier = 4});
  layers::SeparableConv2D(s, image, 5, {2, 3}, {.use_bias = false});
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<std::string> variables;
  for (const Var& v : GlobalVariables(s)) variables.push_back(v.var_name() + v.shape().ToString());
  EXPECT_THAT(variables,
              ElementsAre("conv1d/kernel[3,2,5]", "conv1d/bias[5]", "conv3d/kernel[1,2,3,2,5]", "conv3d/bias[5]",
                          "conv2d_transpose/kernel[2,3,5,2]", "conv2d_transpose/bias[5]", "up/kernel[1,2,3,5,2]",
                          "separable_conv1d/depthwise_kernel[3,2,4]", "separable_conv1d/pointwise_kernel[1,8,5]",
                          "separable_conv1d/bias[5]", "separable_conv2d/depthwise_kernel[2,3,2,1]",
                          "separable_conv2d/pointwise_kernel[1,1,2,5]"));
}

TEST(Convolutions, AnyBatchAndAnySizeIsTransposed) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Placeholder(s, DType::kFloat, {.shape = {-1, -1, 4, 2}});
  const Output y = layers::Conv2DTranspose(s, x, 3, {3, 2}, {.strides = {2, 2}});
  EXPECT_EQ(y.shape(), PartialShape({-1, -1, 8, 3}));
  EXPECT_EQ(RunOnce(s, {y}, {{x, Iota({5, 3, 4, 2}, 7, 3)}})[0].shape(), Shape({5, 7, 8, 3}));
}

TEST(Convolutions, MistakesNameTheLayer) {
  const auto message = [](auto build) {
    const Scope s = Scope::NewRoot();
    build(s);
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  EXPECT_THAT(message([](const Scope& s) {
                layers::Conv1D(s, X(s, {1, 3, 4, 2}), 5, 3);
              }),
              HasSubstr("conv1d: the input Const:0 of shape [1,3,4,2] must have 3 dimensions"));
  EXPECT_THAT(message([](const Scope& s) { layers::Conv3D(s, X(s, {1, 6, 2}), 5, {1, 1, 1}); }), HasSubstr("conv3d"));
  EXPECT_THAT(message([](const Scope& s) { layers::Conv1D(s, X(s, {1, 6, 2}), 0, 3); }), HasSubstr("filters is 0"));
  EXPECT_THAT(message([](const Scope& s) {
                layers::Conv1D(s, X(s, {1, 6, 2}), 1, 3, {.strides = {0}});
              }),
              HasSubstr("a stride is 0"));
  EXPECT_THAT(message([](const Scope& s) { layers::MaxPool1D(s, X(s, {6, 2}), 3); }), HasSubstr("max_pool1d"));
  EXPECT_THAT(message([](const Scope& s) {
                layers::AvgPool3D(s, X(s, {1, 2, 3, 3, 2}), {1, 0, 1});
              }),
              HasSubstr("avg_pool3d: a window of 0"));
}

}  // namespace
}  // namespace millrace
