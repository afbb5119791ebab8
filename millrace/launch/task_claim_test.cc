#include "millrace/launch/task_claim.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace millrace::launch {
namespace {

TEST(TaskClaimTest, IsTakenOverWhenTheFirstHolderHasBeenAskedAndIsGone) {
  const std::string name = absl::StrCat("test-", getpid(), "/worker/0");
  TaskClaim first = TaskClaim::Take(name, absl::ZeroDuration());
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(TaskClaim::Take(name, absl::ZeroDuration()).ok());
  EXPECT_TRUE(TaskClaim::Take(absl::StrCat(name, "0"), absl::ZeroDuration()).ok()) << "of another task";
  TaskClaim second;
  std::thread taking([&] { second = TaskClaim::Take(name, absl::Minutes(1)); });
  pollfd asked = {first.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&asked, 1, 60000), 1);
  EXPECT_TRUE(first.IsAsked());
  first = TaskClaim();
  taking.join();
  EXPECT_TRUE(second.ok());
}

TEST(TaskClaimTest, AHolderThatDoesNotReactIsKilled) {
  const std::string name = absl::StrCat("test-", getpid(), "/worker/1");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const TaskClaim claim = TaskClaim::Take(name, absl::ZeroDuration());
    const char has = claim.ok() ? 1 : 0;
    if (write(ready[1], &has, 1) == 1) pause();
    _exit(1);
  }
  char has = 0;
  ASSERT_EQ(read(ready[0], &has, 1), 1);
  EXPECT_EQ(has, 1);
  EXPECT_TRUE(TaskClaim::Take(name, absl::ZeroDuration()).ok());
  int status = 0;
  ASSERT_EQ(waitpid(holder, &status, 0), holder);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  close(ready[0]);
  close(ready[1]);
}

TEST(TaskClaimTest, WithoutANameThereIsNone) { EXPECT_FALSE(TaskClaim::Take("", absl::Minutes(1)).ok()); }

}  // namespace
}  // namespace millrace::launch
