// What tests of threads that are bound to cores are written with. For tests only.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

namespace millrace {

// As the system sees it: AllowedCores does not count that the thread follows another one.
inline int CoresOfThisThread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return CPU_COUNT(&set);
}

}  // namespace millrace
