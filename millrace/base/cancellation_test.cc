#include "millrace/base/cancellation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

TEST(CancellationTest, CancelCallsEveryCallbackOnceAndKeepsTheFirstReason) {
  CancellationManager manager;
  int calls = 0;
  EXPECT_TRUE(manager.Register(manager.NewToken(), [&] { ++calls; }));
  EXPECT_TRUE(manager.Register(manager.NewToken(), [&] { ++calls; }));
  EXPECT_TRUE(manager.status().ok());
  manager.StartCancel(Aborted("first"));
  manager.StartCancel(Internal("second"));
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(manager.IsCancelled());
  EXPECT_EQ(manager.status(), absl::AbortedError("first"));
}

TEST(CancellationTest, RegisterAfterCancelFails) {
  CancellationManager manager;
  manager.StartCancel();
  bool called = false;
  EXPECT_FALSE(manager.Register(manager.NewToken(), [&] { called = true; }));
  EXPECT_FALSE(called);
  EXPECT_EQ(manager.status().code(), absl::StatusCode::kCancelled);
}

TEST(CancellationTest, DeregisteredCallbackDoesNotRun) {
  CancellationManager manager;
  bool called = false;
  const auto token = manager.NewToken();
  ASSERT_TRUE(manager.Register(token, [&] { called = true; }));
  EXPECT_TRUE(manager.Deregister(token));
  EXPECT_FALSE(manager.Deregister(token));
  manager.StartCancel();
  EXPECT_FALSE(called);
}

TEST(CancellationTest, DeregisterWaitsForARunningCallback) {
  CancellationManager manager;
  const auto token = manager.NewToken();
  Notification started, go_on;
  std::atomic<bool> finished{false};
  ASSERT_TRUE(manager.Register(token, [&] {
    started.Notify();
    go_on.Wait();
    finished = true;
  }));
  ThreadPool pool("test", 2);
  pool.Schedule([&] { manager.StartCancel(); });
  started.Wait();
  Notification deregistered;
  pool.Schedule([&] {
    EXPECT_FALSE(manager.Deregister(token));
    EXPECT_TRUE(finished);
    deregistered.Notify();
  });
  EXPECT_FALSE(finished);
  go_on.Notify();
  deregistered.Wait();
}

TEST(CancellationTest, RegistrationsRacingWithCancelAreCalledOrRefused) {
  constexpr int kCallbacks = 500;
  CancellationManager manager;
  std::atomic<int> called{0}, refused{0};
  {
    ThreadPool pool("test", 3);
    for (int i = 0; i < kCallbacks; ++i) {
      pool.Schedule([&] {
        if (!manager.Register(manager.NewToken(), [&] { ++called; })) ++refused;
      });
      if (i == kCallbacks / 2) pool.Schedule([&] { manager.StartCancel(); });
    }
  }
  EXPECT_EQ(called + refused, kCallbacks);
}

}  // namespace
}  // namespace millrace
