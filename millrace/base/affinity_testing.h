// Test support for threads that are bound to cores.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

namespace millrace {

// The size of the thread's actual affinity mask; AllowedCores ignores a CoreFollower's narrowing.
inline int CoresOfThisThread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return CPU_COUNT(&set);
}

}  // namespace millrace
