#include "millrace/base/stop_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(StopGateTest, NobodyEntersAfterStop) {
  StopGate gate;
  EXPECT_TRUE(gate.Enter());
  gate.Stop();
  EXPECT_TRUE(gate.stopping());
  EXPECT_FALSE(gate.Enter());
  gate.Leave();
  gate.Wait();
  EXPECT_FALSE(gate.Enter());
}

TEST(StopGateTest, WaitForGivesUpWhileSomebodyIsIn) {
  StopGate gate;
  ASSERT_TRUE(gate.Enter());
  gate.Stop();
  EXPECT_FALSE(gate.WaitFor(absl::Milliseconds(1)));
  gate.Leave();
  EXPECT_TRUE(gate.WaitFor(absl::ZeroDuration()));
}

TEST(StopGateTest, WaitReturnsAtOnceIfNobodyIsIn) {
  StopGate gate;
  gate.Stop();
  gate.Wait();
}

TEST(StopGateTest, WaitReturnsWhenTheLastOneHasLeft) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> inside{0}, entered{0};
    StopGate gate;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (gate.Enter()) {
          inside.fetch_add(1);
          entered.fetch_add(1);
          inside.fetch_sub(1);
          gate.Leave();
        }
      });
    }
    while (entered.load() < 20) std::this_thread::yield();
    gate.Stop();
    gate.Wait();
    EXPECT_EQ(inside.load(), 0);
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace millrace
