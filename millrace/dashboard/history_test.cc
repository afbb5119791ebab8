#include "millrace/dashboard/history.h"

#include <gtest/gtest.h>

#include <cmath>

#include "millrace/dashboard/stragglers.h"

namespace millrace::dashboard {
namespace {

TEST(HistoryTest, TheWholeTimeIsKeptInBoundedMemory) {
  History history(100);
  for (int i = 0; i < 100'000; ++i) {
    const double loss = i == 5000 ? 1000 : 1;
    history.Add({.seconds = i * 1.0, .step = i, .loss = Spread{loss, loss, loss}});
    ASSERT_LE(history.samples().size(), 100);
  }
  EXPECT_GE(history.samples().size(), 45);
  EXPECT_LT(history.samples().begin()->second.seconds, 3000);
  EXPECT_EQ(history.samples().rbegin()->second.step, 99'999);
  // A peak is not lost.
  double highest = 0, last = -1;
  for (const auto& [number, sample] : history.samples()) {
    highest = std::max(highest, sample.loss->high);
    EXPECT_GT(sample.seconds, last);
    last = sample.seconds;
  }
  EXPECT_EQ(highest, 1000);
}

TEST(HistoryTest, TheLargestNumbersStayFinite) {
  History history(2);
  for (int i = 0; i < 9; ++i) history.Add({.seconds = i * 1.0, .loss = Spread{-1e308, 1.7e308, 1.7e308}});
  for (const auto& [number, sample] : history.samples()) EXPECT_TRUE(std::isfinite(sample.loss->middle));
}

TEST(HistoryTest, ASpreadIsOfTheFiniteValues) {
  const std::optional<Spread> spread = Spread::Of({3, NAN, 1, INFINITY, 2});
  EXPECT_EQ(spread->low, 1);
  EXPECT_EQ(spread->middle, 2);
  EXPECT_EQ(spread->high, 3);
  EXPECT_FALSE(Spread::Of({NAN}).has_value());
}

TEST(StragglersTest, ATaskMuchSlowerThanItsJobIsOne) {
  const auto slow = SlowTasks({{"worker", "worker/0", 40},
                               {"worker", "worker/1", 12},
                               {"worker", "worker/2", 41},
                               {"evaluator", "evaluator/0", 1}});
  ASSERT_EQ(slow.size(), 1);
  EXPECT_EQ(slow.at("worker/1"), "12.0 steps/s, where the median of its job is 40.0");
  EXPECT_TRUE(SlowTasks({{"worker", "worker/0", 40}, {"worker", "worker/1", 39}}).empty());
  EXPECT_EQ(SlowTasks({{"worker", "worker/0", 40}, {"worker", "worker/1", 10}}).count("worker/1"), 1);
}

TEST(StragglersTest, ATaskThatTheOthersKeepWaitingForIsOne) {
  WaitedFor looks;
  for (int i = 0; i < 30; ++i) looks.Add({"worker/1"});
  EXPECT_EQ(looks.Often().count("worker/1"), 1);
  for (int i = 0; i < 60; ++i) looks.Add({});
  EXPECT_TRUE(looks.Often().empty());
}

}  // namespace
}  // namespace millrace::dashboard
