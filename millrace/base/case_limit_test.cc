// tests/case_limit.cc, which every test program has.
#include <csignal>
#include <cstdlib>

#include "gtest/gtest.h"
#include "millrace/base/child_process_testing.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

TEST(CaseLimitChild, Hangs) {
  if (ChildProcess::Argument() == nullptr) GTEST_SKIP() << "runs as a child of the test below";
  Notification never;
  never.Wait();
}

TEST(CaseLimit, ACaseThatHangsEndsTheProgramWithItsName) {
  setenv("MILLRACE_CASE_LIMIT", "1", 1);
  ChildProcess child("CaseLimitChild.Hangs", "");
  unsetenv("MILLRACE_CASE_LIMIT");
  EXPECT_TRUE(child.Hears("[  FAILED  ] CaseLimitChild.Hangs has not ended after 1 s"));
  const int status = child.WaitForEnd();
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

}  // namespace
}  // namespace millrace
