#include "millrace/train/coordinator.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Coordinator, AStopEndsTheThreadsAndJoinSaysOk) {
  Coordinator coordinator;
  EXPECT_FALSE(coordinator.ShouldStop());
  ASSERT_TRUE(
      coordinator.Start("waits", [&] { return coordinator.WaitForStop() ? absl::OkStatus() : Internal("no stop"); })
          .ok());
  EXPECT_THAT(coordinator.running(), ElementsAre("waits"));
  coordinator.RequestStop();
  EXPECT_TRUE(coordinator.ShouldStop());
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
  EXPECT_TRUE(coordinator.running().empty());
}

TEST(Coordinator, TheFirstErrorStopsTheOthersAndIsReportedOnce) {
  Coordinator coordinator;
  ASSERT_TRUE(coordinator
                  .Start("follower",
                         [&] {
                           coordinator.WaitForStop();
                           return Internal("a consequence");
                         })
                  .ok());
  ASSERT_TRUE(coordinator.Start("reader", [] { return NotFound("no such file"); }).ok());
  const Status status = coordinator.Join();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_EQ(status.message(), "reader: no such file");
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
  EXPECT_EQ(coordinator.status(), absl::OkStatus());
}

TEST(Coordinator, TheEndOfTheInputIsNoError) {
  Coordinator coordinator;
  ASSERT_TRUE(coordinator.Start("reader", [] { return OutOfRange("the end"); }).ok());
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
  EXPECT_TRUE(coordinator.ShouldStop());
}

TEST(Coordinator, AfterAStopCancelledIsCleanAndOtherErrorsAreNot) {
  Coordinator clean;
  clean.RequestStop();
  clean.RequestStop(Cancelled("the session was closed"));
  EXPECT_EQ(clean.Join(), absl::OkStatus());
  Coordinator broken;
  broken.RequestStop();
  broken.RequestStop(Internal("broken"));
  EXPECT_TRUE(absl::IsInternal(broken.Join()));
  Coordinator first;
  first.RequestStop(Cancelled("nobody asked for a stop"));
  EXPECT_TRUE(absl::IsCancelled(first.Join()));
}

TEST(Coordinator, ThreadsThatDoNotStopAreNamed) {
  VirtualClock clock;
  Coordinator coordinator({.clock = &clock});
  Notification release;
  ASSERT_TRUE(coordinator
                  .Start("stuck",
                         [&] {
                           release.Wait();
                           return absl::OkStatus();
                         })
                  .ok());
  ASSERT_TRUE(coordinator
                  .Start("good",
                         [&] {
                           coordinator.WaitForStop();
                           clock.Advance(absl::Seconds(121));
                           return absl::OkStatus();
                         })
                  .ok());
  coordinator.RequestStop();
  const Status status = coordinator.Join(absl::Seconds(30));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("30s"));
  EXPECT_THAT(status.message(), HasSubstr("stuck"));
  EXPECT_THAT(coordinator.ClearStop().message(), HasSubstr("stuck"));
  release.Notify();
  EXPECT_EQ(coordinator.Join(absl::InfiniteDuration()), absl::OkStatus());
}

TEST(Coordinator, LoopsRunEveryPeriodUntilTheStop) {
  VirtualClock clock;
  Coordinator coordinator({.clock = &clock});
  std::atomic<int> calls = 0;
  Notification third;
  ASSERT_TRUE(coordinator
                  .Loop("save", absl::Seconds(600),
                        [&] {
                          if (++calls == 3) third.Notify();
                          clock.Advance(absl::Seconds(600));
                          return absl::OkStatus();
                        })
                  .ok());
  third.Wait();
  coordinator.RequestStop();
  EXPECT_EQ(coordinator.Join(absl::InfiniteDuration()), absl::OkStatus());
  EXPECT_TRUE(
      absl::IsInvalidArgument(coordinator.Loop("backwards", -absl::Seconds(1), [] { return absl::OkStatus(); })));
}

TEST(Coordinator, WaitForStopEndsWithItsTimeOut) {
  VirtualClock clock;
  Coordinator coordinator({.clock = &clock});
  ASSERT_TRUE(coordinator
                  .Loop("time", absl::ZeroDuration(),
                        [&] {
                          clock.Advance(absl::Seconds(10));
                          return absl::OkStatus();
                        })
                  .ok());
  EXPECT_FALSE(coordinator.WaitForStop(absl::Seconds(5)));
}

TEST(Coordinator, CallbacksAreCalledOnceAtTheStopOrAtOnceAfterIt) {
  Coordinator coordinator;
  int calls = 0;
  coordinator.OnStop([&] { ++calls; });
  EXPECT_EQ(calls, 0);
  coordinator.RequestStop();
  coordinator.RequestStop();
  EXPECT_EQ(calls, 1);
  coordinator.OnStop([&] { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(Coordinator, IsUsableAgainAfterClearStop) {
  Coordinator coordinator;
  coordinator.RequestStop(Internal("old"));
  EXPECT_TRUE(absl::IsFailedPrecondition(coordinator.Start("late", [] { return absl::OkStatus(); })));
  ASSERT_EQ(coordinator.ClearStop(), absl::OkStatus());
  EXPECT_FALSE(coordinator.ShouldStop());
  ASSERT_TRUE(coordinator.Start("new", [] { return Internal("new"); }).ok());
  EXPECT_EQ(coordinator.Join().message(), "new: new");
}

}  // namespace
}  // namespace millrace
