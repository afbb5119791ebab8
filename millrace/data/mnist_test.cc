#include "millrace/data/mnist.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "absl/strings/match.h"
#include "millrace/io/idx.h"

namespace millrace {
namespace {

class MnistTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("train-images-idx3-ubyte", Tensor::Of<uint8_t>(Shape({2, 1, 3}), {0, 51, 255, 1, 2, 3}));
    Write("train-labels-idx1-ubyte", Tensor::Of<uint8_t>({7, 9}));
    Write("t10k-images-idx3-ubyte", Tensor::Of<uint8_t>(Shape({1, 1, 3}), {255, 0, 0}));
    Write("t10k-labels-idx1-ubyte", Tensor::Of<uint8_t>({0}));
  }
  void Write(const std::string& name, const Tensor& tensor) { ASSERT_TRUE(WriteIdx(tensor, dir_.File(name)).ok()); }
  void ExpectError(absl::StatusCode code, absl::string_view name) {
    const Status status = LoadMnist(dir_.path()).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), name)) << status;
  }

  TempDirectory dir_ = TempDirectory::Make("mnist_test").value();
};

TEST_F(MnistTest, ImagesAreScaledAndLabelsWidened) {
  const StatusOr<Mnist> mnist = LoadMnist(dir_.path());
  ASSERT_TRUE(mnist.ok()) << mnist.status();
  EXPECT_EQ(mnist->train_images.shape(), Shape({2, 3}));
  EXPECT_FLOAT_EQ(mnist->train_images.data<float>()[1], 0.2f);
  EXPECT_FLOAT_EQ(mnist->train_images.data<float>()[2], 1.0f);
  EXPECT_EQ(mnist->train_labels.DebugString(), "int64[2] [7 9]");
  EXPECT_EQ(mnist->test_images.shape(), Shape({1, 3}));
  EXPECT_EQ(mnist->test_labels.dtype(), DType::kInt64);
}

TEST_F(MnistTest, TakesCompressedFilesToo) {
  const std::string plain = dir_.File("train-images-idx3-ubyte");
  const std::string content = ReadWholeFile(FileSystem::Posix(), plain).value();
  gzFile file = gzopen((plain + ".gz").c_str(), "wb");
  ASSERT_GT(gzwrite(file, content.data(), content.size()), 0);
  gzclose(file);
  ASSERT_TRUE(FileSystem::Posix()->Remove(plain).ok());
  EXPECT_EQ(LoadMnist(dir_.path())->train_images.shape(), Shape({2, 3}));
}

TEST_F(MnistTest, ErrorsNameTheFile) {
  Write("train-labels-idx1-ubyte", Tensor::Of<uint8_t>({7}));
  ExpectError(absl::StatusCode::kInvalidArgument, "train-labels-idx1-ubyte");
  Write("train-labels-idx1-ubyte", Tensor::Of<uint8_t>({7, 10}));
  ExpectError(absl::StatusCode::kInvalidArgument, "label 1 is 10");
  Write("train-labels-idx1-ubyte", Tensor::Of<float>({7, 9}));
  ExpectError(absl::StatusCode::kInvalidArgument, "train-labels-idx1-ubyte");
  ASSERT_TRUE(FileSystem::Posix()->Remove(dir_.File("train-images-idx3-ubyte")).ok());
  ExpectError(absl::StatusCode::kNotFound, "train-images-idx3-ubyte");
}

}  // namespace
}  // namespace millrace
