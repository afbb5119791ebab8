#include "millrace/io/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "absl/strings/match.h"

namespace millrace {
namespace {

// What a header of type `code` with these dimensions looks like.
std::string Header(char code, std::initializer_list<uint32_t> dims) {
  std::string bytes = {0, 0, code, static_cast<char>(dims.size())};
  for (uint32_t d : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(d >> shift));
  }
  return bytes;
}

class IdxTest : public ::testing::Test {
 protected:
  std::string File(absl::string_view content) {
    const std::string path = dir_.File("f.idx");
    MR_CHECK(ReplaceFile(FileSystem::Posix(), path, content).ok());
    return path;
  }
  std::string Gzip(const std::string& content) {
    const std::string path = dir_.File("f.idx.gz");
    gzFile file = gzopen(path.c_str(), "wb");
    MR_CHECK(gzwrite(file, content.data(), content.size()) == static_cast<int>(content.size()));
    gzclose(file);
    return path;
  }
  void ExpectError(const std::string& path, absl::StatusCode code, absl::string_view part) {
    const Status status = ReadIdx(path).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  }

  TempDirectory dir_ = TempDirectory::Make("idx_test").value();
};

TEST_F(IdxTest, ReadsBytesPlainAndCompressed) {
  const std::string content = Header(8, {2, 3}) + std::string("\x00\x01\x02\x03\x04\xff", 6);
  for (const std::string& path : {File(content), Gzip(content)}) {
    const StatusOr<Tensor> t = ReadIdx(path);
    ASSERT_TRUE(t.ok()) << t.status();
    EXPECT_EQ(t->DebugString(), "uint8[2,3] [[0 1 2] [3 4 255]]");
  }
}

TEST_F(IdxTest, ElementsAreBigEndian) {
  EXPECT_EQ(ReadIdx(File(Header(0x0b, {2}) + std::string("\x01\x02\xff\xfe", 4)))->DebugString(), "int16[2] [258 -2]");
  EXPECT_EQ(ReadIdx(File(Header(0x0d, {1}) + std::string("\x3f\x80\x00\x00", 4)))->DebugString(), "float[1] [1]");
}

TEST_F(IdxTest, EveryTypeSurvivesAWriteAndARead) {
  for (const Tensor& t : {Tensor::Of<uint8_t>({1, 2}), Tensor::Of<int8_t>({-1, 2}), Tensor::Of<int16_t>({-300, 2}),
                          Tensor::Of<int32_t>(Shape({1, 2}), {-70000, 2}), Tensor::Of<float>({1.5f, -2}),
                          Tensor::Of<double>({1.25, -1e100}), Tensor(DType::kFloat, Shape({0, 4}))}) {
    const std::string path = dir_.File("t.idx");
    ASSERT_TRUE(WriteIdx(t, path).ok());
    EXPECT_EQ(ReadIdx(path)->DebugString(), t.DebugString());
  }
  EXPECT_EQ(WriteIdx(Tensor::Of<int64_t>({1}), dir_.File("t.idx")).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(IdxTest, MissingFileIsNotFound) {
  ExpectError(dir_.File("missing"), absl::StatusCode::kNotFound, "No such file");
}

TEST_F(IdxTest, TruncationIsToldWhereverItIs) {
  const std::string whole = Header(8, {2, 3}) + "abcdef";
  ExpectError(File(whole.substr(0, 0)), absl::StatusCode::kDataLoss, "magic number");
  ExpectError(File(whole.substr(0, 3)), absl::StatusCode::kDataLoss, "magic number");
  ExpectError(File(whole.substr(0, 9)), absl::StatusCode::kDataLoss, "dimensions");
  ExpectError(File(whole.substr(0, 17)), absl::StatusCode::kDataLoss, "5 bytes of elements");
}

TEST_F(IdxTest, TruncatedOrDamagedCompressionIsTold) {
  std::string content = Header(8, {100, 100});
  for (int i = 0; i < 10000; ++i) content.push_back(static_cast<char>(i * i >> 3));
  const std::string gzip = ReadWholeFile(FileSystem::Posix(), Gzip(content)).value();
  for (size_t keep : {size_t{3}, size_t{40}, gzip.size() / 2, gzip.size() - 1}) {
    ExpectError(File(gzip.substr(0, keep)), absl::StatusCode::kDataLoss, "truncated");
  }
  std::string damaged = gzip;
  damaged[damaged.size() - 6] ^= 0x55;  // in the checksum
  ExpectError(File(damaged), absl::StatusCode::kDataLoss, "damaged");
  ExpectError(File(gzip + "trailing"), absl::StatusCode::kDataLoss, "damaged");
}

TEST_F(IdxTest, BadMagicIsTold) {
  ExpectError(File("PNG is no IDX"), absl::StatusCode::kInvalidArgument, "0x504e4720");
  ExpectError(File(Header(0x0a, {1}) + "x"), absl::StatusCode::kInvalidArgument, "magic");
  ExpectError(File(Header(8, {})), absl::StatusCode::kInvalidArgument, "magic");
}

TEST_F(IdxTest, TrailingBytesAreTold) {
  const std::string content = Header(8, {2}) + "abc";
  ExpectError(File(content), absl::StatusCode::kDataLoss, "more bytes");
  ExpectError(Gzip(content), absl::StatusCode::kDataLoss, "more bytes");
}

TEST_F(IdxTest, EnormousSizesTakeNoMemory) {
  const uint32_t max = 0xffffffff;
  ExpectError(File(Header(8, {max, max, max}) + "abc"), absl::StatusCode::kInvalidArgument, "64 bits");
  ExpectError(File(Header(0x0e, {max, 0x7fffffff}) + "abc"), absl::StatusCode::kDataLoss, "truncated");
  ExpectError(File(Header(8, {max}) + "abc"), absl::StatusCode::kDataLoss, "truncated");
  ExpectError(Gzip(Header(8, {max}) + "abc"), absl::StatusCode::kDataLoss, "truncated");
}

}  // namespace
}  // namespace millrace
