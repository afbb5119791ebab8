#include "millrace/base/file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

class FileTest : public ::testing::Test {
 protected:
  FileSystem* files_ = FileSystem::Posix();
  TempDirectory dir_ = TempDirectory::Make("file_test").value();

  void Write(const std::string& path, absl::string_view data, FileSystem::Mode mode = FileSystem::Mode::kTruncate) {
    std::unique_ptr<WritableFile> file = files_->OpenWritable(path, mode).value();
    ASSERT_TRUE(file->Append(data).ok());
    ASSERT_TRUE(file->Close().ok());
  }
};

TEST_F(FileTest, WhatIsWrittenIsRead) {
  for (size_t size : {0, 1, 4095, 4096, 65536, 65537, 1000000}) {
    std::string data(size, 'x');
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 31);
    Write(dir_.File("f"), data);
    EXPECT_EQ(files_->FileSize(dir_.File("f")).value(), size);
    EXPECT_EQ(ReadWholeFile(files_, dir_.File("f")).value(), data);
  }
}

TEST_F(FileTest, AppendKeepsAndTruncateDrops) {
  Write(dir_.File("f"), "one");
  Write(dir_.File("f"), "two", FileSystem::Mode::kAppend);
  EXPECT_EQ(ReadWholeFile(files_, dir_.File("f")).value(), "onetwo");
  Write(dir_.File("f"), "three");
  EXPECT_EQ(ReadWholeFile(files_, dir_.File("f")).value(), "three");
}

TEST_F(FileTest, SyncMakesAppendedBytesVisible) {
  std::unique_ptr<WritableFile> file = files_->OpenWritable(dir_.File("f")).value();
  ASSERT_TRUE(file->Append("abc").ok());
  ASSERT_TRUE(file->Sync().ok());
  EXPECT_EQ(ReadWholeFile(files_, dir_.File("f")).value(), "abc");
  ASSERT_TRUE(file->Close().ok());
  EXPECT_EQ(file->Append(std::string(100000, 'x')).code(), absl::StatusCode::kFailedPrecondition);
}

// Past the cache go large blocks, which wants everything aligned.
TEST_F(FileTest, ALongFileIsWhatWasAppendedWhereverItsPiecesEnd) {
  for (const size_t first : {size_t{0}, size_t{1}, size_t{4096}, size_t{100000}}) {
    for (const size_t piece : {size_t{1}, size_t{4095}, size_t{1} << 20, (size_t{4} << 20) + 3}) {
      std::unique_ptr<WritableFile> file = files_->OpenWritable(dir_.File("f")).value();
      std::string expected;
      const auto append = [&](size_t size) {
        std::string data(size, 'x');
        for (size_t i = 0; i < size; ++i) data[i] = static_cast<char>((i + expected.size()) * 31 >> 3);
        expected += data;
        ASSERT_TRUE(file->Append(data).ok());
      };
      append(first);
      for (int i = 0; i < 11; ++i) {
        // Past the cache for three of four.
        ASSERT_TRUE(file->SetPastCache(i % 4 != 3).ok());
        ASSERT_TRUE(file->StartSync().ok());
        append(piece);
        if (i == 7) {
          ASSERT_TRUE(file->Flush().ok());
          EXPECT_EQ(files_->FileSize(dir_.File("f")).value(), expected.size());
        }
      }
      ASSERT_TRUE(file->Sync().ok() && file->Close().ok());
      EXPECT_TRUE(ReadWholeFile(files_, dir_.File("f")).value() == expected) << first << " " << piece;
    }
  }
}

TEST_F(FileTest, SequentialReadIsShortOnlyAtTheEnd) {
  Write(dir_.File("f"), "abcde");
  std::unique_ptr<SequentialFile> file = files_->OpenSequential(dir_.File("f")).value();
  char buffer[4];
  EXPECT_EQ(file->Read(4, buffer).value(), 4u);
  EXPECT_EQ(file->Read(4, buffer).value(), 1u);
  EXPECT_EQ(buffer[0], 'e');
  EXPECT_EQ(file->Read(4, buffer).value(), 0u);
}

TEST_F(FileTest, MissingFilesAreNotFoundAndNamed) {
  const std::string path = dir_.File("missing");
  for (const Status& status :
       {files_->OpenSequential(path).status(), files_->FileSize(path).status(), files_->Exists(path),
        files_->Rename(path, dir_.File("x")), files_->List(path).status(), files_->Remove(path),
        files_->OpenWritable(path + "/f").status(), files_->RemoveTree(path)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_NE(status.message().find(path.substr(0, path.rfind('/'))), absl::string_view::npos) << status;
  }
}

TEST_F(FileTest, ReadingADirectoryIsAnError) { EXPECT_FALSE(ReadWholeFile(files_, dir_.path()).ok()); }

TEST_F(FileTest, DirectoriesAreMadeListedAndRemoved) {
  ASSERT_TRUE(files_->MakeDirectories(dir_.File("a/b/c")).ok());
  ASSERT_TRUE(files_->MakeDirectories(dir_.File("a/b/c/")).ok());
  Write(dir_.File("a/z"), "1");
  EXPECT_EQ(files_->List(dir_.File("a")).value(), std::vector<std::string>({"b", "z"}));
  EXPECT_EQ(files_->MakeDirectories(dir_.File("a/z")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(files_->Remove(dir_.File("a")).ok());
  ASSERT_TRUE(files_->RemoveTree(dir_.File("a")).ok());
  EXPECT_EQ(files_->Exists(dir_.File("a")).code(), absl::StatusCode::kNotFound);
}

TEST_F(FileTest, ReplaceFileLeavesOnlyTheNewContent) {
  Write(dir_.File("f"), "old");
  ASSERT_TRUE(ReplaceFile(files_, dir_.File("f"), "new").ok());
  EXPECT_EQ(ReadWholeFile(files_, dir_.File("f")).value(), "new");
  EXPECT_EQ(files_->List(dir_.path()).value(), std::vector<std::string>({"f"}));
}

TEST_F(FileTest, TemporaryDirectoryGoesWithItsObject) {
  std::string path;
  {
    const TempDirectory dir = TempDirectory::Make("file_test").value();
    path = dir.path();
    Write(dir.File("f"), "x");
    EXPECT_TRUE(files_->Exists(path).ok());
  }
  EXPECT_EQ(files_->Exists(path).code(), absl::StatusCode::kNotFound);
}

TEST(PathTest, JoinsAndSplits) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(DirectoryOf("a/b"), "a");
  EXPECT_EQ(DirectoryOf("/b"), "/");
  EXPECT_EQ(DirectoryOf("b"), ".");
}

}  // namespace
}  // namespace millrace
