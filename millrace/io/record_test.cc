#include "millrace/io/record.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "millrace/base/crc32c.h"
#include "millrace/io/coding.h"
#include "millrace/io/memory_files_testing.h"

namespace millrace {
namespace {

const std::string kSamples = absl::StrCat(MILLRACE_TESTDATA, "/records/");

using Records = std::vector<std::string>;

// All records, and then how it ended.
std::pair<Records, Status> ReadAll(FileSystem* files, const std::string& path, Compression compression) {
  auto reader = RecordReader::Open(files, path, compression);
  if (!reader.ok()) return {{}, reader.status()};
  Records records;
  std::string record;
  for (;;) {
    const StatusOr<bool> more = (*reader)->Read(&record);
    if (!more.ok()) {
      EXPECT_EQ((*reader)->Read(&record).status(), more.status()) << "an error stays";
      return {records, more.status()};
    }
    if (!*more) return {records, absl::OkStatus()};
    records.push_back(record);
  }
}

class RecordTest : public ::testing::TestWithParam<Compression> {
 protected:
  std::string Written(const Records& records) {
    const std::string path = dir_.File("records");
    const auto writer = RecordWriter::Create(FileSystem::Posix(), path, GetParam()).value();
    for (const std::string& record : records) EXPECT_TRUE(writer->Write(record).ok());
    EXPECT_TRUE(writer->Close().ok());
    return ReadWholeFile(FileSystem::Posix(), path).value();
  }
  std::pair<Records, Status> Read(absl::string_view bytes) {
    memory_.files["f"] = std::string(bytes);
    return ReadAll(&memory_, "f", GetParam());
  }
  MemoryFiles memory_;
  TempDirectory dir_ = TempDirectory::Make("record_test").value();
};

INSTANTIATE_TEST_SUITE_P(All, RecordTest,
                         ::testing::Values(Compression::kNone, Compression::kZlib, Compression::kGzip));

TEST_P(RecordTest, WhatIsWrittenIsRead) {
  Records records = {"", "a", std::string(100000, 'x'), "", "end"};
  std::string mixed;
  for (int i = 0; i < 3000000; ++i) mixed.push_back(static_cast<char>(i * 2654435761u >> 11));
  records.push_back(mixed);
  EXPECT_EQ(Read(Written(records)), std::pair(records, absl::OkStatus()));
  EXPECT_EQ(Read(Written({})), std::pair(Records(), absl::OkStatus()));
}

TEST_P(RecordTest, FlushedRecordsAreReadWhileTheWriterGoesOn) {
  const std::string path = dir_.File("records");
  const auto writer = RecordWriter::Create(FileSystem::Posix(), path, GetParam()).value();
  ASSERT_TRUE(writer->Write("one").ok());
  ASSERT_TRUE(writer->Flush().ok());
  const auto reader = RecordReader::Open(FileSystem::Posix(), path, GetParam()).value();
  std::string record;
  ASSERT_TRUE(reader->Read(&record).value());
  EXPECT_EQ(record, "one");
}

TEST_P(RecordTest, EveryTruncationIsFoundAfterTheRecordsBeforeIt) {
  const Records all = {"first", "", "third record"};
  const std::string good = Written(all);
  for (size_t size = 0; size < good.size(); ++size) {
    const auto [records, status] = Read(absl::string_view(good).substr(0, size));
    ASSERT_LE(records.size(), all.size());
    EXPECT_TRUE(std::equal(records.begin(), records.end(), all.begin()));
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), "f")) << status;
    } else {
      // A file may end between records, or before it has begun.
      EXPECT_TRUE(GetParam() == Compression::kNone || size == 0) << size;
    }
  }
}

TEST_P(RecordTest, EveryFlippedBitIsFound) {
  const Records all = {"first", "", "third record"};
  const std::string good = Written(all);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] ^= static_cast<char>(1 << bit);
      const auto [records, status] = Read(bad);
      // Some bits of a compressed stream say nothing about the content.
      EXPECT_TRUE(absl::IsDataLoss(status) || (records == all && GetParam() != Compression::kNone)) << i << status;
    }
  }
}

TEST(RecordFileTest, TensorFlowsFilesAreReadAndWrittenAlike) {
  FileSystem* const files = FileSystem::Posix();
  const Records two = {"abc", ""};
  EXPECT_EQ(ReadAll(files, kSamples + "two.tfrecord", Compression::kNone).first, two);
  EXPECT_EQ(ReadAll(files, kSamples + "two.zlib.tfrecord", Compression::kZlib).first, two);
  EXPECT_EQ(ReadAll(files, kSamples + "two.gzip.tfrecord", Compression::kGzip).first, two);
  TempDirectory dir = TempDirectory::Make("record_test").value();
  const auto writer = RecordWriter::Create(files, dir.File("f")).value();
  for (const std::string& record : two) ASSERT_TRUE(writer->Write(record).ok());
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(ReadWholeFile(files, dir.File("f")).value(), ReadWholeFile(files, kSamples + "two.tfrecord").value());
}

TEST(RecordFileTest, AHugeLengthTakesNoMemory) {
  for (const uint64_t length : {uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 3}) {
    MemoryFiles files;
    std::string header;
    PutFixed64(&header, length);
    PutFixed32(&header, MaskCrc(Crc32c(header)));
    files.files["f"] = header + "little";
    const auto [records, status] = ReadAll(&files, "f", Compression::kNone);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  }
}

TEST(RecordFileTest, TheWrongCompressionIsDataLoss) {
  FileSystem* const files = FileSystem::Posix();
  for (const auto& [name, how] : {std::pair("two.tfrecord", Compression::kGzip),
                                  {"two.tfrecord", Compression::kZlib},
                                  {"two.gzip.tfrecord", Compression::kNone},
                                  {"two.gzip.tfrecord", Compression::kZlib}}) {
    const auto [records, status] = ReadAll(files, kSamples + name, how);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << status;
    EXPECT_TRUE(absl::StrContains(status.message(), name)) << status;
  }
}

TEST(BufferedInputTest, LinesEndInEitherWay) {
  for (const size_t buffer : {1, 2, 3, 1000}) {
    MemoryFiles files;
    files.files["f"] = std::string("a\rb\r\r\nc\n\r\n\nx\0y", 14);
    BufferedInput input(files.OpenSequential("f").value(), buffer);
    Records lines;
    std::string line;
    while (input.ReadLine(&line).value()) lines.push_back(line);
    EXPECT_EQ(lines, (Records{"a\rb\r", "c", "", "", std::string("x\0y", 3)})) << buffer;
    EXPECT_EQ(input.offset(), 14u);
  }
}

}  // namespace
}  // namespace millrace
