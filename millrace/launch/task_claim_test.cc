#include "millrace/launch/task_claim.h"

#include <poll.h>
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

TEST(TaskClaimTest, WithoutANameThereIsNone) { EXPECT_FALSE(TaskClaim::Take("", absl::Minutes(1)).ok()); }

}  // namespace
}  // namespace millrace::launch
