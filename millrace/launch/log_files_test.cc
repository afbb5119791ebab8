#include "millrace/launch/log_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "millrace/base/file.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

TEST(LogFiles, WriteWhatTheyAreGivenInOrder) {
  const TempDirectory dir = TempDirectory::Make("logs").value();
  LogFiles logs = LogFiles::Open(dir.File("logs"), {"a.log", "b.log"}).value();
  std::string all;
  for (int i = 0; i < 20000; ++i) {
    const std::string line = absl::StrCat("line ", i, "\n");
    all += line;
    while (!logs.Add(0, line)) logs.Flush();
  }
  EXPECT_TRUE(logs.Add(1, "short"));
  EXPECT_TRUE(logs.Close(kPatience));
  EXPECT_TRUE(ReadWholeFile(FileSystem::Posix(), dir.File("logs/a.log")).value() == all);
  EXPECT_EQ(ReadWholeFile(FileSystem::Posix(), dir.File("logs/b.log")).value(), "short");
}

TEST(LogFiles, ADiskThatStallsBlocksNobodyAndWhatIsMissingIsTold) {
  const TempDirectory dir = TempDirectory::Make("logs").value();
  ASSERT_EQ(mkfifo(dir.File("a.log").c_str(), 0600), 0);
  // A pipe that nobody reads takes no more than its size.
  Fd reader(open(dir.File("a.log").c_str(), O_RDONLY | O_NONBLOCK));
  LogFiles logs = LogFiles::Open(dir.path(), {"a.log"}).value();
  const std::string megabyte(1 << 20, 'x');
  int taken = 0;
  while (logs.Add(0, megabyte)) ASSERT_LT(++taken, 100);
  EXPECT_GE(taken, 10);
  EXPECT_FALSE(logs.Add(0, megabyte));
  EXPECT_FALSE(logs.Add(0, megabyte));
  // The disk is back.
  fcntl(reader.get(), F_SETFL, 0);
  std::string written;
  std::thread disk([&] {
    std::string piece(1 << 16, '\0');
    ssize_t size;
    while ((size = read(reader.get(), piece.data(), piece.size())) > 0)
      written.append(piece.data(), static_cast<size_t>(size));
  });
  while (!logs.Add(0, "the end")) logs.Flush();
  EXPECT_TRUE(logs.Close(kPatience));
  disk.join();
  EXPECT_EQ(std::count(written.begin(), written.end(), 'x'), taken * (1 << 20));
  EXPECT_TRUE(
      absl::EndsWith(written, "\n[millrace: 3145728 bytes are missing here: the disk did not keep up]\nthe end"));
}

TEST(LogFiles, TheEndOfAJobDoesNotWaitForAStalledDisk) {
  const TempDirectory dir = TempDirectory::Make("logs").value();
  ASSERT_EQ(mkfifo(dir.File("a.log").c_str(), 0600), 0);
  const Fd reader(open(dir.File("a.log").c_str(), O_RDONLY | O_NONBLOCK));
  LogFiles logs = LogFiles::Open(dir.path(), {"a.log"}).value();
  EXPECT_TRUE(logs.Add(0, std::string(1 << 20, 'x')));
  EXPECT_FALSE(logs.Close(absl::Milliseconds(50)));
  kill(logs.pid(), SIGKILL);
  EXPECT_TRUE(logs.Close(kPatience));
}

TEST(LogFiles, AFileThatCannotBeWrittenIsGivenUpAndNamed) {
  const TempDirectory dir = TempDirectory::Make("logs").value();
  ASSERT_EQ(symlink("/dev/full", dir.File("a.log").c_str()), 0);
  LogFiles logs = LogFiles::Open(dir.path(), {"a.log", "b.log"}).value();
  EXPECT_TRUE(logs.Add(0, "lost"));
  EXPECT_TRUE(logs.Add(1, "kept"));
  EXPECT_TRUE(logs.Close(kPatience));
  int failed = -1, why = 0;
  logs.ReadFailures([&](int file, int error) {
    failed = file;
    why = error;
  });
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(why, ENOSPC);
  EXPECT_EQ(ReadWholeFile(FileSystem::Posix(), dir.File("b.log")).value(), "kept");
}

TEST(LogFiles, WithoutADirectoryNothingIsWritten) {
  LogFiles logs;
  EXPECT_TRUE(logs.Add(0, "nothing"));
  EXPECT_EQ(logs.fd(), -1);
  EXPECT_TRUE(logs.Close(kPatience));
}

}  // namespace
}  // namespace millrace::launch
