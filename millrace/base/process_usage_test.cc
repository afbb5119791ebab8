#include "millrace/base/process_usage.h"

#include <sched.h>

#include <chrono>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(ProcessUsage, QuotasAreReadAsCores) {
  EXPECT_DOUBLE_EQ(CoresOfQuota("250000 100000"), 2.5);
  EXPECT_DOUBLE_EQ(CoresOfQuota("50000 100000\n"), 0.5);
  for (const char* none : {"max 100000", "-1 100000", "", "100000", "1 0", "0 100000", "a b", "1 2 3"})
    EXPECT_EQ(CoresOfQuota(none), 0) << none;
}

TEST(ProcessUsage, CoresAreThoseThatTheProcessMayRunOn) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GT(UsableCores(), 0);
  EXPECT_LE(UsableCores(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_LE(UsableCores(), 1);
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(ProcessUsage, TheHostIsBusyWithAllButIdleTime) {
  const HostUsage usage =
      ParseHostUsage("cpu  100 20 30 5000 600 7 8 35 50 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 7 7\n", 100);
  EXPECT_EQ(usage.cores, 2);
  EXPECT_DOUBLE_EQ(usage.busy_seconds, 2);
  for (const char* odd : {"", "cpu", "cpu x y z", "\n\n"}) EXPECT_EQ(ParseHostUsage(odd, 100).busy_seconds, 0) << odd;
  EXPECT_GT(UsageOfThisHost().cores, 0);
  EXPECT_GT(UsageOfThisHost().busy_seconds, 0);
}

TEST(ProcessUsage, WorkIsCounted) {
  const ProcessUsage before = UsageOfThisProcess();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto spent = [&] {
    return UsageOfThisProcess().user_seconds + UsageOfThisProcess().system_seconds - before.user_seconds -
           before.system_seconds;
  };
  while (spent() < 0.01 && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_GE(spent(), 0.01);
}

}  // namespace
}  // namespace millrace
