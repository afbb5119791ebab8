// The ops between the products of a dense network: biases, activations, softmax, losses, top-k.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/ops/run_op.h"

namespace millrace {
namespace {

TEST(BiasAddTest, AddsAlongTheChannelsOfEitherLayout) {
  const Tensor bias = Tensor::Of<float>({10, 20});
  auto y = RunOp("BiasAdd", {Tensor::Of<float>(Shape({1, 1, 2, 2}), {1, 2, 3, 4}), bias});
  ASSERT_TRUE(y.ok()) << y.status();
  ExpectNear((*y)[0], Tensor::Of<float>(Shape({1, 1, 2, 2}), {11, 22, 13, 24}), 0);
  y = RunOp("BiasAdd", {Tensor::Of<float>(Shape({1, 2, 1, 2}), {1, 2, 3, 4}), bias}, {{"data_format", "NCHW"}});
  ASSERT_TRUE(y.ok()) << y.status();
  ExpectNear((*y)[0], Tensor::Of<float>(Shape({1, 2, 1, 2}), {11, 12, 23, 24}), 0);
  EXPECT_EQ(RunOp("BiasAdd", {Noise(Shape({2, 3})), bias}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BiasAddGradTest, SumsOverEverythingElseOnAnyNumberOfThreads) {
  const Tensor g = Noise(Shape({5000, 37}));
  const auto sum = RunOnAllThreads("BiasAddGrad", {g});
  ASSERT_EQ(sum.size(), 1);
  for (int64_t c = 0; c < 37; ++c) {
    double want = 0;
    for (int64_t r = 0; r < 5000; ++r) want += g.data<float>()[r * 37 + c];
    ASSERT_NEAR(sum[0].data<float>()[c], want, 1e-3);
  }
}

TEST(SoftmaxTest, RowsSumToOneAndLargeLogitsDoNotOverflow) {
  const auto y = RunOp("Softmax", {Tensor::Of<float>(Shape({2, 3}), {1000, 1000, -1000, 1, 2, 3})});
  ASSERT_TRUE(y.ok()) << y.status();
  ExpectNear((*y)[0], Tensor::Of<float>(Shape({2, 3}), {0.5f, 0.5f, 0, 0.09003057f, 0.24472847f, 0.66524096f}), 1e-6f);
  const auto log = RunOp("LogSoftmax", {Tensor::Of<float>(Shape({1, 2}), {1000, 0})});
  ASSERT_TRUE(log.ok()) << log.status();
  ExpectNear((*log)[0], Tensor::Of<float>(Shape({1, 2}), {0, -1000}), 1e-6f);
}

// So large that the result goes out past the cache; with rows that begin where lines of it do, and others.
TEST(SoftmaxTest, LargeOnesHaveTheBitsOfSmallOnes) {
  for (const int64_t width : {1024, 1000, 1003}) {
    const int64_t rows = (int64_t{7} << 20) / width;
    Tensor x = Noise(Shape({rows, width}));
    x.data<float>()[5 * width + 3] = std::numeric_limits<float>::quiet_NaN();
    x.data<float>()[6 * width + 3] = -std::numeric_limits<float>::infinity();
    const auto y = RunOnAllThreads("Softmax", {x});
    ASSERT_EQ(y.size(), 1);
    for (const int64_t r : {int64_t{0}, int64_t{5}, int64_t{6}, int64_t{7}, int64_t{255}, int64_t{256}, rows - 1}) {
      Tensor row(DType::kFloat, Shape({1, width}));
      std::copy_n(x.data<float>() + r * width, width, row.data<float>());
      const auto alone = RunOp("Softmax", {row});
      ASSERT_TRUE(alone.ok()) << alone.status();
      EXPECT_EQ(std::memcmp((*alone)[0].raw_data(), y[0].data<float>() + r * width, width * sizeof(float)), 0)
          << "row " << r << " of " << width;
      EXPECT_EQ(std::isnan(y[0].data<float>()[r * width]), r == 5);
    }
    EXPECT_EQ(y[0].data<float>()[6 * width + 3], 0);
  }
}

TEST(CrossEntropyTest, SparseAndDenseLabelsAgreeOnAnyNumberOfThreads) {
  const int64_t rows = 3000, classes = 11;
  const Tensor x = Noise(Shape({rows, classes}));
  Tensor dense(DType::kFloat, x.shape()), sparse(DType::kInt64, Shape({rows}));
  for (int64_t r = 0; r < rows; ++r) {
    sparse.data<int64_t>()[r] = r * 7 % classes;
    for (int64_t c = 0; c < classes; ++c) dense.data<float>()[r * classes + c] = c == r * 7 % classes;
  }
  const auto a = RunOnAllThreads("SparseSoftmaxCrossEntropyWithLogits", {x, sparse});
  const auto b = RunOnAllThreads("SoftmaxCrossEntropyWithLogits", {x, dense});
  ASSERT_EQ(a.size(), 2);
  ASSERT_EQ(b.size(), 2);
  ExpectNear(a[0], b[0], 1e-5f);
  ExpectNear(a[1], b[1], 1e-5f);
}

TEST(CrossEntropyTest, ALabelOutsideTheClassesIsNamed) {
  for (int32_t label : {-1, 3}) {
    const Status status =
        RunOp("SparseSoftmaxCrossEntropyWithLogits", {Noise(Shape({1, 3})), Tensor::Of<int32_t>({label})}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(label)), std::string::npos) << status;
  }
}

TEST(L2LossTest, IsHalfTheSumOfSquaresOnAnyNumberOfThreads) {
  const Tensor x = Noise(Shape({100003}));
  double want = 0;
  for (float v : x.flat<float>()) want += 0.5 * v * v;
  const auto loss = RunOnAllThreads("L2Loss", {x});
  ASSERT_EQ(loss.size(), 1);
  EXPECT_NEAR(loss[0].scalar<float>(), want, want * 1e-5);
}

TEST(TopKTest, EqualElementsComeInTheirOrder) {
  const auto out = RunOp("TopKV2", {Tensor::Of<float>({2, 5, 5, 1, 5}), Tensor::Scalar<int32_t>(3)});
  ASSERT_TRUE(out.ok()) << out.status();
  ExpectNear((*out)[0], Tensor::Of<float>({5, 5, 5}), 0);
  const auto places = (*out)[1].flat<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(places.begin(), places.end()), (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(RunOp("TopKV2", {Tensor::Of<float>({1, 2}), Tensor::Scalar<int32_t>(3)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ActivationTest, NaNsStayNaNs) {
  const Tensor nan = Tensor::Of<float>({NAN});
  for (const char* op : {"Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign"}) {
    const auto y = RunOp(op, {nan});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_TRUE(std::isnan((*y)[0].scalar<float>())) << op;
  }
}

TEST(BatchNormTest, NormalisesAndGivesMomentsOnAnyNumberOfThreads) {
  const int64_t n = 6 * 20 * 20, channels = 7;
  const Tensor x = Noise(Shape({6, 20, 20, channels}));
  Tensor ones(DType::kFloat, Shape({channels}));
  for (float& v : ones.flat<float>()) v = 1;
  const Tensor none(DType::kFloat, Shape({0}));
  const auto out = RunOnAllThreads("FusedBatchNormV3", {x, ones, ones, none, none}, {{"epsilon", 1e-3f}});
  ASSERT_EQ(out.size(), 6);
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n; ++i) mean += x.data<float>()[i * channels + c] / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      const double d = x.data<float>()[i * channels + c] - mean;
      square += d * d;
    }
    EXPECT_NEAR(out[1].data<float>()[c], mean, 1e-5);
    EXPECT_NEAR(out[2].data<float>()[c], square / (n - 1), 1e-5);
    EXPECT_NEAR(out[4].data<float>()[c], square / n, 1e-5);
    const double y = (x.data<float>()[c] - mean) / std::sqrt(square / n + 1e-3) + 1;
    EXPECT_NEAR(out[0].data<float>()[c], y, 1e-4);
  }
}

}  // namespace
}  // namespace millrace
