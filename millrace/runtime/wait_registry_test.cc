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

}  // namespace
}  // namespace millrace
