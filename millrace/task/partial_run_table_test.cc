#include "millrace/task/partial_run_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(PartialRunTableTest, AHandleFindsItsRunUntilItIsRemovedAndIsNotReused) {
  PartialRunTable<int> table;
  const std::string first = table.Add(std::make_shared<int>(1)), second = table.Add(std::make_shared<int>(2));
  EXPECT_EQ(**table.Find(first), 1);
  EXPECT_EQ(**table.Find(second), 2);
  table.Remove(first);
  table.Remove(first);
  const Status gone = table.Find(first).status();
  EXPECT_TRUE(absl::IsInvalidArgument(gone));
  EXPECT_THAT(std::string(gone.message()), HasSubstr(absl::StrCat("there is no partial run '", first, "'")));
  EXPECT_NE(table.Add(std::make_shared<int>(3)), first);
  EXPECT_EQ(table.List().size(), 2u);
  EXPECT_EQ(table.TakeAll().size(), 2u);
  EXPECT_FALSE(table.Find(second).ok());
}

TEST(PartialRunTableTest, TheEndOfARunMayUseTheTable) {
  PartialRunTable<void> table;
  int ended = 0;
  const auto run = [&] { return std::shared_ptr<void>(nullptr, [&](void*) { ended += table.List().empty(); }); };
  table.Remove(table.Add(run()));
  table.Add(run());
  table.TakeAll();
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace millrace
