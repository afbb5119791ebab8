#include "millrace/io/table.h"

#include <gtest/gtest.h>
#include <snappy.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "millrace/base/crc32c.h"
#include "millrace/io/coding.h"
#include "millrace/io/memory_files_testing.h"

namespace millrace {
namespace {

using Entries = std::map<std::string, std::string>;

class TableTest : public ::testing::Test {
 protected:
  void Write(const Entries& entries) {
    const auto file = files_->OpenWritable(path_).value();
    TableWriter writer(file.get());
    for (const auto& [key, value] : entries) ASSERT_TRUE(writer.Add(key, value).ok());
    ASSERT_TRUE(writer.Finish().ok());
    ASSERT_TRUE(file->Close().ok());
  }
  StatusOr<Entries> ReadAll() { return ReadAll(files_); }
  // The same of a file with these bytes.
  StatusOr<Entries> ReadAll(absl::string_view bytes) {
    memory_.files[path_] = std::string(bytes);
    return ReadAll(&memory_);
  }
  StatusOr<Entries> ReadAll(FileSystem* files) {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<Table> table, Table::Open(files, path_));
    Entries entries;
    MR_RETURN_IF_ERROR(table->ForEach([&](absl::string_view key, absl::string_view value) {
      entries.emplace(key, value);
      return absl::OkStatus();
    }));
    return entries;
  }

  FileSystem* files_ = FileSystem::Posix();
  MemoryFiles memory_;
  TempDirectory dir_ = TempDirectory::Make("table_test").value();
  std::string path_ = dir_.File("table");
};

Entries ManyEntries(int n) {
  Entries entries = {{"", "header"}};
  for (int i = 0; i < n; ++i) entries[absl::StrFormat("some/scope_%06d/w", i * 7)] = std::string(i % 90, 'v');
  return entries;
}

TEST_F(TableTest, WhatIsWrittenIsReadAndFound) {
  for (const int n : {0, 1, 15, 16, 17, 1000, 20000}) {
    const Entries entries = ManyEntries(n);
    Write(entries);
    EXPECT_EQ(ReadAll().value(), entries) << n;
    const auto table = Table::Open(files_, path_).value();
    int i = 0;
    for (const auto& [key, value] : entries) {
      if (n > 1000 && ++i % 97 != 0) continue;
      EXPECT_EQ(table->Find(key).value(), value);
      EXPECT_EQ(table->Find(key + "x").status().code(), absl::StatusCode::kNotFound);
    }
    EXPECT_EQ(table->Find("zzz").status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(table->Find(std::string("\0", 1)).status().code(), absl::StatusCode::kNotFound);
  }
}

TEST_F(TableTest, AnEmptyTableIsReadAsOne) {
  Write({});
  EXPECT_TRUE(ReadAll().value().empty());
  EXPECT_EQ(Table::Open(files_, path_).value()->Find("a").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TableTest, KeysMustIncreaseAcrossBlocksToo) {
  const auto file = files_->OpenWritable(path_).value();
  TableWriter writer(file.get());
  ASSERT_TRUE(writer.Add("b", std::string(300000, 'x')).ok());
  EXPECT_EQ(writer.Add("b", "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer.Add("a", "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(writer.Add("c", "").ok());
}

TEST_F(TableTest, EveryFlippedBitIsFound) {
  Write(ManyEntries(40));
  const std::string good = ReadWholeFile(files_, path_).value();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] ^= static_cast<char>(1 << bit);
      const auto entries = ReadAll(bad);
      EXPECT_EQ(entries.status().code(), absl::StatusCode::kDataLoss) << "byte " << i << ": " << entries.status();
      EXPECT_NE(entries.status().message().find(path_), absl::string_view::npos);
    }
  }
}

TEST_F(TableTest, EveryTruncationIsFound) {
  Write(ManyEntries(40));
  const std::string good = ReadWholeFile(files_, path_).value();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(ReadAll(absl::string_view(good).substr(0, size)).status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

// A table of one block with this content; everything but the block is as it should be.
std::string TableOf(std::string block, char compression = 0) {
  const auto finish = [](std::string content, char how) {
    content.push_back(how);
    PutFixed32(&content, MaskCrc(Crc32c(content)));
    return content;
  };
  std::string file = finish(block, compression), place, footer, index;
  PutVarint(&place, 0);
  PutVarint(&place, block.size());
  const size_t others_at = file.size();
  const std::string empty("\0\0\0\0\1\0\0\0", 8);
  file += finish(empty, 0);
  PutVarint(&footer, others_at);
  PutVarint(&footer, empty.size());
  index = std::string("\0\1", 2);
  PutVarint(&index, place.size());
  index += "z" + place + empty;
  PutVarint(&footer, file.size());
  PutVarint(&footer, index.size());
  file += finish(index, 0);
  footer.resize(40);
  return file + footer + std::string("\x57\xfb\x80\x8b\x24\x75\x47\xdb");
}

TEST_F(TableTest, EntriesThatMakeNoSenseAreDataLoss) {
  const std::string restarts("\0\0\0\0\1\0\0\0", 8);
  const std::string good = absl::StrCat(std::string("\0\1\1ab\0\1\1cd", 10), restarts);
  EXPECT_EQ(ReadAll(TableOf(good)).value(), (Entries{{"a", "b"}, {"c", "d"}}));
  const std::vector<std::string> bad = {
      std::string("\0\1\1cb\0\1\1ad", 10) + restarts,  // out of order
      std::string("\0\1\1ab\0\1\1ad", 10) + restarts,  // the same key twice
      std::string("\0\1\1ab\2\1\1cd", 10) + restarts,  // shares more than there is
      std::string("\0\1\xff\xff\xff\xff\x7f"
                  "ab",
                  9) +
          restarts,  // a value past the end
      std::string("\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\1ab", 14) + restarts,
      std::string("\0\1", 2) + restarts,   // cut short
      std::string("\xff\xff\xff\xff", 4),  // more restarts than bytes
      std::string("\0\0\0", 3),            // no place for their number
      restarts,                            // no entries
  };
  for (const std::string& block : bad) {
    EXPECT_EQ(ReadAll(TableOf(block)).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_FALSE(Table::Open(&memory_, path_).value()->Find("q").ok());
  }
}

TEST_F(TableTest, SnappyBlocksAreRead) {
  const std::string block = absl::StrCat(std::string("\0\1\1ab\0\1\1cd", 10), std::string("\0\0\0\0\1\0\0\0", 8));
  std::string compressed;
  snappy::Compress(block.data(), block.size(), &compressed);
  EXPECT_EQ(ReadAll(TableOf(compressed, 1)).value(), (Entries{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(ReadAll(TableOf("\xff\xff\xff\xff\x0f garbage that claims four gigabytes", 1)).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadAll(TableOf(block, 2)).status().code(), absl::StatusCode::kDataLoss);
}

TEST(CodingTest, OrderedNumbersAreAsTensorFlowWritesThem) {
  const auto encoded = [](int64_t value) {
    std::string out;
    PutOrderedSigned(&out, value);
    return out;
  };
  EXPECT_EQ(encoded(0), "\x80");
  EXPECT_EQ(encoded(2), "\x82");
  EXPECT_EQ(encoded(-1), "\x7f");
  EXPECT_EQ(encoded(63), "\xbf");
  EXPECT_EQ(encoded(-64), "\x40");
  EXPECT_EQ(encoded(64), "\xc0\x40");
  EXPECT_EQ(encoded(300), "\xc1\x2c");
  EXPECT_EQ(encoded(5000), "\xd3\x88");
  EXPECT_EQ(encoded(8192), std::string("\xe0\x20\x00", 3));
  EXPECT_EQ(encoded(70000), "\xe1\x11\x70");
  std::string before;
  for (const int64_t value : {INT64_MIN, INT64_MIN + 1, int64_t{-1} << 62, int64_t{-70000}, int64_t{-8193},
                              int64_t{-65}, int64_t{-64}, int64_t{0}, int64_t{1} << 20, int64_t{1} << 34,
                              int64_t{1} << 48, int64_t{1} << 55, int64_t{1} << 61, int64_t{1} << 62, INT64_MAX}) {
    EXPECT_LT(before, encoded(value)) << value;
    before = encoded(value);
  }
}

TEST(CodingTest, VarintsRoundTripAndLongOnesAreRefused) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{1} << 35, UINT64_MAX}) {
    std::string bytes;
    PutVarint(&bytes, value);
    absl::string_view rest = bytes;
    uint64_t got;
    ASSERT_TRUE(TakeVarint(&rest, &got));
    EXPECT_EQ(got, value);
    EXPECT_TRUE(rest.empty());
    rest = absl::string_view(bytes).substr(0, bytes.size() - 1);
    EXPECT_FALSE(TakeVarint(&rest, &got));
  }
  absl::string_view too_long = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02";
  uint64_t got;
  EXPECT_FALSE(TakeVarint(&too_long, &got));
}

TEST(CodingTest, JoinedChecksumsAreThoseOfTheWhole) {
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes.push_back(static_cast<char>(i * 2654435761u >> 13));
  const absl::string_view all = bytes;
  for (const size_t cut : {0, 1, 7, 4096, 65537, 99999, 100000}) {
    EXPECT_EQ(JoinCrc32c(Crc32c(all.substr(0, cut)), Crc32c(all.substr(cut)), all.size() - cut), Crc32c(all)) << cut;
  }
}

}  // namespace
}  // namespace millrace
