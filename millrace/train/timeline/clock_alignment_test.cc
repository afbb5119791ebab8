#include "millrace/train/timeline/clock_alignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace millrace {
namespace {

TEST(ClockAlignment, TheMiddleOfTheBoundsIsTheOffset) {
  ClockAlignment clocks;
  clocks.Bound("ps", "worker", 900, 1300);
  clocks.Between("ps", 5000, "worker", 3600, 4000);  // 1000 to 1400
  int64_t slack = 0;
  const auto estimates = clocks.Solve("worker", &slack);
  EXPECT_EQ(slack, 0);
  EXPECT_EQ(estimates.at("ps").offset, 1150);
  EXPECT_EQ(estimates.at("ps").error, 150);
  EXPECT_TRUE(estimates.at("ps").known);
  EXPECT_EQ(estimates.at("worker").offset, 0);
  EXPECT_EQ(clocks.Solve("ps", &slack).at("worker").offset, -1150);
}

TEST(ClockAlignment, BoundsAddUpAlongAWay) {
  ClockAlignment clocks;
  clocks.Bound("b", "a", 100, 120);
  clocks.Bound("c", "b", -50, -40);
  int64_t slack = 0;
  const auto estimates = clocks.Solve("a", &slack);
  EXPECT_EQ(estimates.at("c").offset, 65);
  EXPECT_EQ(estimates.at("c").error, 15);
}

TEST(ClockAlignment, AClockOfWhichNothingIsKnownIsTakenAsItIs) {
  ClockAlignment clocks;
  clocks.Bound("b", "a", 100, 120);
  clocks.Bound("d", "c", 0, 0);
  int64_t slack = 0;
  const auto estimates = clocks.Solve("a", &slack);
  EXPECT_FALSE(estimates.at("c").known);
  EXPECT_EQ(estimates.at("d").offset, 0);
}

TEST(ClockAlignment, ContradictionsAreLoosenedAndToldOf) {
  ClockAlignment clocks;
  clocks.Bound("b", "a", 100'000, 120'000);
  clocks.Bound("b", "a", 150'000, 160'000);
  int64_t slack = 0;
  const auto estimates = clocks.Solve("a", &slack);
  EXPECT_GE(slack, 15'000);
  EXPECT_NEAR(static_cast<double>(estimates.at("b").offset), 135'000, 15'000);
}

TEST(ClockAlignment, AbsurdBoundsSayNothing) {
  ClockAlignment clocks;
  clocks.Bound("b", "a", INT64_MIN, INT64_MAX);
  clocks.Bound("c", "a", INT64_MAX, INT64_MIN);
  int64_t slack = 0;
  EXPECT_FALSE(clocks.Solve("a", &slack).at("b").known);
  EXPECT_EQ(clocks.Solve("nobody", &slack).at("nobody").offset, 0);
}

TEST(ClockAlignment, NoFactIsContradictedWhicheverPairsMet) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const int n = 2 + static_cast<int>(random() % 6);
    std::vector<int64_t> truth;
    for (int i = 0; i < n; ++i) truth.push_back(static_cast<int64_t>(random() % 10'000'000'000));
    struct Fact {
      int a, b;
      int64_t least, most;
    };
    std::vector<Fact> facts;
    ClockAlignment clocks;
    for (int i = 0; i < 30; ++i) {
      const int a = random() % n, b = random() % n;
      if (a == b) continue;
      const int64_t difference = truth[a] - truth[b];
      facts.push_back({a, b, difference - static_cast<int64_t>(random() % 1'000'000),
                       difference + static_cast<int64_t>(random() % 1'000'000)});
      clocks.Bound(std::to_string(a), std::to_string(b), facts.back().least, facts.back().most);
    }
    if (facts.empty()) continue;
    int64_t slack = 0;
    const auto estimates = clocks.Solve(std::to_string(facts[0].a), &slack);
    EXPECT_EQ(slack, 0);
    for (const Fact& fact : facts) {
      const auto &a = estimates.at(std::to_string(fact.a)), &b = estimates.at(std::to_string(fact.b));
      if (!a.known || !b.known) continue;
      // One for the halving.
      EXPECT_GE(a.offset - b.offset, fact.least - 1);
      EXPECT_LE(a.offset - b.offset, fact.most + 1);
      EXPECT_LE(std::abs(a.offset - (truth[fact.a] - truth[facts[0].a])), a.error + 1);
    }
  }
}

}  // namespace
}  // namespace millrace
