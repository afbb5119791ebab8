#include "millrace/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

namespace millrace {
namespace {

int Open() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FdTest, IsClosedWithItsOwner) {
  int number;
  {
    const Fd fd(Open());
    ASSERT_TRUE(fd.ok());
    number = fd.get();
    EXPECT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(FdTest, MovesToOneOwner) {
  Fd first(Open());
  const int number = first.get();
  Fd second(std::move(first));
  EXPECT_FALSE(first.ok());
  EXPECT_EQ(first.get(), -1);
  EXPECT_EQ(second.get(), number);
  EXPECT_TRUE(IsOpen(number));
  second.Reset();
  EXPECT_FALSE(second.ok());
  EXPECT_FALSE(IsOpen(number));
}

TEST(FdTest, AssigningClosesWhatWasThere) {
  Fd fd(Open());
  Fd other(Open());
  const int old = fd.get();
  const int number = other.get();
  fd = std::move(other);
  EXPECT_EQ(fd.get(), number);
  EXPECT_TRUE(IsOpen(number));
  EXPECT_FALSE(IsOpen(old));
  Fd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(IsOpen(number));
}

TEST(FdTest, WithoutADescriptorErrnoStays) {
  Fd fd;
  fd = Fd(open("/dev/null/none", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(errno, ENOTDIR);
  EXPECT_FALSE(fd.ok());
  fd.Reset();
  EXPECT_EQ(errno, ENOTDIR);
}

}  // namespace
}  // namespace millrace
