#include "millrace/net/lane/cross_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

namespace millrace::net {
namespace {

TEST(CrossMemory, TheCommonAncestorOfTasksIsTheirLauncher) {
  // A launcher (10) with two tasks, one of which is a shell (12) that runs the task (13); another user's shell (20).
  const std::map<pid_t, pid_t> parents = {{10, 1}, {11, 10}, {12, 10}, {13, 12}, {20, 1}, {1, 0}};
  const auto parent = [&](pid_t process) {
    const auto it = parents.find(process);
    return it == parents.end() ? 0 : it->second;
  };
  EXPECT_EQ(CommonAncestor(11, 13, parent), 10);
  EXPECT_EQ(CommonAncestor(13, 11, parent), 10);
  EXPECT_EQ(CommonAncestor(12, 13, parent), 12);
  EXPECT_EQ(CommonAncestor(11, 11, parent), 11);
  EXPECT_EQ(CommonAncestor(11, 20, parent), 1);
  EXPECT_EQ(CommonAncestor(11, 99, parent), 0);
  // A chain that never ends, as it may look while processes end and their numbers are used again.
  EXPECT_EQ(CommonAncestor(5, 7, [](pid_t process) { return process; }), 0);
}

TEST(CrossMemory, AProcessMayReadItself) { EXPECT_EQ(AllowMemoryReads(getpid()), absl::OkStatus()); }

}  // namespace
}  // namespace millrace::net
