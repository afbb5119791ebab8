#include "millrace/runtime/wait_registry.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(WaitRegistry, ListsTheOldestWaitFirstUntilItEnds) {
  VirtualClock clock;
  WaitRegistry waits(&clock);
  const uint64_t first = waits.Begin("dequeue", "1 element from queue 'a'", 7);
  clock.Advance(absl::Seconds(3));
  waits.Begin("take", "2 gradients", 8);
  ASSERT_EQ(waits.List().size(), 2u);
  EXPECT_EQ(waits.List()[0].node, "dequeue");
  EXPECT_EQ(waits.List()[1].since - waits.List()[0].since, absl::Seconds(3));
  waits.End(first);
  waits.End(first);
  ASSERT_EQ(waits.List().size(), 1u);
  EXPECT_EQ(waits.List()[0].step_id, 8);
}

TEST(WaitRegistry, AsksHowFarAWaitHasComeWhenItIsListed) {
  WaitRegistry waits;
  int gradients = 0;
  const uint64_t wait = waits.Begin(
      {.node = "take", .what = "gradients", .step_id = 7, .kind = Wait::Kind::kElements, .resource = "accumulator 'w'"},
      [&](Wait* w) {
        w->has = gradients;
        w->needs = 2;
        // No lock is held here.
        waits.End(12345);
      });
  EXPECT_EQ(waits.List()[0].has, 0);
  gradients = 1;
  EXPECT_EQ(waits.List()[0].has, 1);
  EXPECT_EQ(waits.List()[0].needs, 2);
  EXPECT_EQ(waits.List()[0].resource, "accumulator 'w'");
  waits.End(wait);
  EXPECT_TRUE(waits.List().empty());
}

}  // namespace
}  // namespace millrace
