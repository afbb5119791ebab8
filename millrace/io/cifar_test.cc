#include "millrace/io/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A record whose pixels are first + plane + position, modulo 256.
std::string Record(int label, int first) {
  std::string record(1, static_cast<char>(label));
  for (int plane = 0; plane < 3; ++plane) {
    for (int i = 0; i < 1024; ++i) record.push_back(static_cast<char>(first + plane + i));
  }
  return record;
}

class CifarTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, absl::string_view content) {
    ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), dir_.File(name), content).ok());
  }
  // A folder in which each file has two records.
  void WriteAll() {
    for (int i = 1; i <= 5; ++i) Write(absl::StrCat("data_batch_", i, ".bin"), Record(i, 10 * i) + Record(9, 0));
    Write("test_batch.bin", Record(0, 1) + Record(7, 2));
    Write("batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
    Write("readme.html", "<html></html>");
  }
  void ExpectError(absl::StatusCode code, const std::string& file, const std::string& part) {
    const Status status = ReadCifarFolder(dir_.path()).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }

  TempDirectory dir_ = TempDirectory::Make("cifar_test").value();
};

TEST_F(CifarTest, PixelsHaveTheirColoursSideBySide) {
  Write("b.bin", Record(3, 100) + Record(9, 255));
  const StatusOr<CifarRecords> read = ReadCifarBatch(dir_.File("b.bin"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->labels.DebugString(), "int32[2] [3 9]");
  EXPECT_EQ(read->images.shape(), Shape({2, 32, 32, 3}));
  const uint8_t* pixels = read->images.data<uint8_t>();
  EXPECT_THAT(std::vector<int>(pixels, pixels + 6), ElementsAre(100, 101, 102, 101, 102, 103));
  // Row 1, column 2 of the second image: position 34 of each plane.
  const uint8_t* at = pixels + 3072 + 34 * 3;
  EXPECT_THAT(std::vector<int>(at, at + 3), ElementsAre(33, 34, 35));
}

TEST_F(CifarTest, MoreRecordsThanAreReadAtOnce) {
  std::string content;
  for (int i = 0; i < 600; ++i) content += Record(i % 10, i);
  Write("b.bin", content);
  const StatusOr<CifarRecords> read = ReadCifarBatch(dir_.File("b.bin"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->labels.dim(0), 600);
  EXPECT_EQ(read->labels.data<int32_t>()[599], 9);
  EXPECT_EQ(read->images.data<uint8_t>()[599 * 3072], 599 % 256);
}

TEST_F(CifarTest, TheFiveBatchesAreOneInTheirOrder) {
  WriteAll();
  const StatusOr<CifarFolder> read = ReadCifarFolder(dir_.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->train.labels.DebugString(), "int32[10] [1 9 2 9 3 9 4 9 5 9]");
  EXPECT_EQ(read->train.images.data<uint8_t>()[4 * 3072], 30);
  EXPECT_EQ(read->test.labels.DebugString(), "int32[2] [0 7]");
  EXPECT_EQ(read->class_names[9], "truck");
  EXPECT_THAT(read->absent, IsEmpty());
}

TEST_F(CifarTest, TheDirectoryAboveIsFineToo) {
  ASSERT_TRUE(FileSystem::Posix()->MakeDirectories(dir_.File("cifar-10-batches-bin")).ok());
  for (int i = 1; i <= 5; ++i) Write(absl::StrCat("cifar-10-batches-bin/data_batch_", i, ".bin"), Record(i, 0));
  Write("cifar-10-batches-bin/test_batch.bin", Record(1, 0));
  const StatusOr<CifarFolder> read = ReadCifarFolder(dir_.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->train.labels.dim(0), 5);
}

TEST_F(CifarTest, AllMissingFilesAreNamed) {
  WriteAll();
  for (const char* name : {"data_batch_3.bin", "test_batch.bin"})
    ASSERT_TRUE(FileSystem::Posix()->Remove(dir_.File(name)).ok());
  ExpectError(absl::StatusCode::kNotFound, dir_.path(), "it lacks data_batch_3.bin, test_batch.bin");
  const Status nowhere = ReadCifarFolder(dir_.File("nowhere")).status();
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr("there is no such directory"));
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr("nowhere"));
}

TEST_F(CifarTest, WhatTrainingDoesNotNeedMayBeAbsent) {
  WriteAll();
  for (const char* name : {"batches.meta.txt", "readme.html"})
    ASSERT_TRUE(FileSystem::Posix()->Remove(dir_.File(name)).ok());
  const StatusOr<CifarFolder> read = ReadCifarFolder(dir_.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->absent, ElementsAre("batches.meta.txt", "readme.html"));
  EXPECT_EQ(read->class_names.size(), 10);
  EXPECT_EQ(read->class_names[0], "airplane");
}

TEST_F(CifarTest, AnIncompleteFileIsNamed) {
  WriteAll();
  const std::string whole = Record(4, 40) + Record(9, 0);
  for (const size_t keep : {size_t{0}, size_t{1}, whole.size() / 2 - 1, whole.size() - 1}) {
    Write("data_batch_4.bin", whole.substr(0, keep));
    ExpectError(absl::StatusCode::kDataLoss, "data_batch_4.bin", "incomplete");
  }
  // Cut between two records, and a first file that is shorter than the others.
  Write("data_batch_4.bin", Record(4, 40));
  ExpectError(absl::StatusCode::kDataLoss, "data_batch_4.bin is incomplete", "1 records, and data_batch_1.bin has 2");
  Write("data_batch_4.bin", whole);
  Write("data_batch_1.bin", Record(1, 1));
  ExpectError(absl::StatusCode::kDataLoss, "data_batch_1.bin is incomplete", "data_batch_2.bin has 2");
  Write("data_batch_1.bin", whole);
  Write("test_batch.bin", whole + "x");
  ExpectError(absl::StatusCode::kDataLoss, "test_batch.bin", "6147 bytes");
}

TEST_F(CifarTest, ALabelThatCannotBeIsNamed) {
  WriteAll();
  Write("data_batch_2.bin", Record(2, 0) + Record(10, 0));
  ExpectError(absl::StatusCode::kInvalidArgument, "data_batch_2.bin", "record 1 has label 10");
}

TEST_F(CifarTest, NamesOfClassesThatAreNotTenAreTold) {
  WriteAll();
  Write("batches.meta.txt", "cat\ndog\n");
  ExpectError(absl::StatusCode::kInvalidArgument, "batches.meta.txt", "2 names");
}

}  // namespace
}  // namespace millrace
