#include "millrace/io/mapped_bundle.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace millrace {
namespace {

Tensor Counting(int64_t size) {
  Tensor tensor(DType::kFloat, Shape({size}));
  for (int64_t i = 0; i < size; ++i) tensor.data<float>()[i] = static_cast<float>(i);
  return tensor;
}

class MappedBundleTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::unique_ptr<BundleWriter> writer = BundleWriter::Create(FileSystem::Posix(), prefix_).value();
    ASSERT_TRUE(writer->Add("a_small", Tensor::Of<float>({1, 2, 3})).ok());
    ASSERT_TRUE(writer->Add("large", Counting(kLarge)).ok());
    ASSERT_TRUE(writer->Add("middle", Tensor::Of<std::string>({"x", "y"})).ok());
    ASSERT_TRUE(writer->Add("other", Counting(kLarge + 1)).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  StatusOr<std::vector<Tensor>> Read(const std::vector<std::string>& names) {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(FileSystem::Posix(), prefix_));
    return ReadMapped(*reader, names, &pool_);
  }

  static constexpr int64_t kLarge = 700000;  // several checksums
  const TempDirectory temporary_ = TempDirectory::Make("mapped").value();
  const std::string prefix_ = temporary_.File("ckpt");
  const std::string data_ = BundleDataPath(prefix_, 0, 1);
  ThreadPool pool_{"test", 2};
};

TEST_F(MappedBundleTest, GivesTheValuesOfTheCheckpoint) {
  const StatusOr<std::vector<Tensor>> tensors = Read({"other", "a_small", "large", "middle"});
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ((*tensors)[0].data<float>()[kLarge], static_cast<float>(kLarge));
  EXPECT_EQ((*tensors)[1].data<float>()[2], 3);
  EXPECT_EQ((*tensors)[2].shape(), Shape({kLarge}));
  EXPECT_EQ((*tensors)[2].data<float>()[12345], 12345);
  EXPECT_EQ((*tensors)[3].data<std::string>()[1], "y");
  // Also after odd neighbours.
  EXPECT_TRUE((*tensors)[0].IsAligned());
  EXPECT_TRUE((*tensors)[2].IsAligned());
  EXPECT_TRUE(absl::IsNotFound(Read({"none"}).status()));
}

TEST_F(MappedBundleTest, WritesStayInMemoryAndRemovedFilesInUse) {
  const std::string before = ReadWholeFile(FileSystem::Posix(), data_).value();
  std::vector<Tensor> tensors = Read({"large"}).value();
  ASSERT_TRUE(tensors[0].RefCountIsOne());
  tensors[0].data<float>()[7] = -1;
  EXPECT_EQ(ReadWholeFile(FileSystem::Posix(), data_).value(), before);
  ASSERT_TRUE(FileSystem::Posix()->Remove(data_).ok());
  EXPECT_EQ(tensors[0].data<float>()[7], -1);
  EXPECT_EQ(tensors[0].data<float>()[kLarge - 1], static_cast<float>(kLarge - 1));
}

TEST_F(MappedBundleTest, DamageIsDataLossThatNamesTheTensor) {
  std::string bytes = ReadWholeFile(FileSystem::Posix(), data_).value();
  bytes[bytes.size() / 4] ^= 1;
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), data_, bytes).ok());
  const Status status = Read({"other", "large"}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "tensor large")) << status;
  EXPECT_TRUE(Read({"other"}).ok());
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), data_, bytes.substr(0, 100)).ok());
  EXPECT_FALSE(Read({"other"}).ok());
}

}  // namespace
}  // namespace millrace
