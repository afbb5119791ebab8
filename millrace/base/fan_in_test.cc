#include "millrace/base/fan_in.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

// How often `done` ran, and with what.
struct Ended {
  FanIn::Done Done() {
    return [this](Status status) {
      ++times;
      how = std::move(status);
    };
  }
  int times = 0;
  Status how = Internal("not yet");
};

TEST(FanIn, EndsWithTheLastArrival) {
  Ended ended;
  FanIn all(3, ended.Done());
  all.Arrive();
  all.Arrive();
  EXPECT_EQ(ended.times, 0);
  all.Arrive();
  EXPECT_EQ(ended.times, 1);
  EXPECT_EQ(ended.how, absl::OkStatus());
}

TEST(FanIn, WaitsForAllAndGivesTheFirstError) {
  Ended ended;
  FanIn all(3, ended.Done());
  all.Arrive(Aborted("first"));
  all.Arrive(Internal("second"));
  EXPECT_EQ(ended.times, 0);
  all.Arrive();
  EXPECT_EQ(ended.times, 1);
  EXPECT_EQ(ended.how, Aborted("first"));
}

TEST(FanIn, WhoHasYetToArriveMayAskForMore) {
  Ended ended;
  FanIn all(1, ended.Done());
  all.Add(2);
  all.Arrive();
  all.Arrive();
  EXPECT_EQ(ended.times, 0);
  all.Arrive();
  EXPECT_EQ(ended.times, 1);
}

TEST(FanIn, FailEndsAtOnceAndArrivalsAreThenIgnored) {
  Ended ended;
  FanIn all(2, ended.Done());
  all.Fail(Cancelled("given up"));
  EXPECT_EQ(ended.times, 1);
  EXPECT_EQ(ended.how, Cancelled("given up"));
  all.Arrive();
  all.Arrive(Internal("late"));
  all.Fail(Internal("later"));
  EXPECT_EQ(ended.times, 1);
  EXPECT_FALSE(all.Cancel());
}

TEST(FanIn, CancelEndsWithoutDone) {
  Ended ended;
  FanIn all(1, ended.Done());
  EXPECT_TRUE(all.Cancel());
  EXPECT_FALSE(all.Cancel());
  all.Arrive();
  EXPECT_EQ(ended.times, 0);
}

TEST(FanIn, DoneMayEndWhatHoldsIt) {
  auto all = std::make_shared<std::unique_ptr<FanIn>>();
  bool ended = false;
  *all = std::make_unique<FanIn>(1, [all, &ended](Status) {
    all->reset();
    ended = true;
  });
  (*all)->Arrive();
  EXPECT_TRUE(ended);
}

TEST(FanIn, OneOfManyThreadsEndsItAndSeesWhatAllWrote) {
  constexpr int kThreads = 8;
  for (int round = 0; round < 200; ++round) {
    int written[kThreads] = {};
    int sum = 0, times = 0;
    FanIn all(kThreads, [&](Status) {
      ++times;
      for (const int w : written) sum += w;
    });
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        written[i] = i + 1;
        all.Arrive(i % 2 == 0 ? absl::OkStatus() : Internal("odd"));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(times, 1);
    EXPECT_EQ(sum, kThreads * (kThreads + 1) / 2);
  }
}

TEST(FanIn, AFailureAndTheLastArrivalDoNotBothEndIt) {
  for (int round = 0; round < 500; ++round) {
    std::atomic<int> times{0};
    FanIn all(1, [&](Status) { ++times; });
    std::thread fails([&] { all.Fail(Cancelled("given up")); });
    all.Arrive();
    fails.join();
    EXPECT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace millrace
