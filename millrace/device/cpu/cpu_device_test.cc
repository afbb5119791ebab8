#include "millrace/device/cpu/cpu_device.h"

#include <thread>

#include "gtest/gtest.h"
#include "millrace/base/affinity.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

TEST(CpuDevice, HasAThreadForEachCoreThatItMayUse) {
  const std::vector<int> cores = AllowedCores();
  EXPECT_EQ(NewCpuDevice({})->intra_op_pool()->num_threads(), cores.size() - 1);  // the caller's is one more
  std::thread([&] {
    ASSERT_TRUE(BindToCores({cores.front()}).ok());
    EXPECT_EQ(NewCpuDevice({})->intra_op_pool()->num_threads(), 0);
    EXPECT_EQ(NewCpuDevice({.intra_op_threads = 3})->intra_op_pool()->num_threads(), 2);
  }).join();
}

}  // namespace
}  // namespace millrace
