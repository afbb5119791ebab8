#include "millrace/launch/place/node_list.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NodeList, IsExpandedInItsOrderWithItsWidths) {
  EXPECT_THAT(ExpandNodeList("a,b[01,03-05],r[0-1]c[1-2]").value(),
              ElementsAre("a", "b01", "b03", "b04", "b05", "r0c1", "r0c2", "r1c1", "r1c2"));
  EXPECT_THAT(ExpandNodeList("node[9-11]").value(), ElementsAre("node9", "node10", "node11"));
  EXPECT_THAT(ExpandNodeList("node[098-101]-ib").value(),
              ElementsAre("node098-ib", "node099-ib", "node100-ib", "node101-ib"));
  EXPECT_THAT(ExpandNodeList("single").value(), ElementsAre("single"));
  EXPECT_THAT(ExpandNodeList("z,a,z").value(), ElementsAre("z", "a", "z"));
}

TEST(NodeList, WhatIsMalformedIsSaid) {
  for (const char* list : {"", ",", "a,,b", "a,", "n[", "n]", "n[]", "n[1", "n[1-]", "n[-1]", "n[a]", "n[1,]", "n[3-1]",
                           "n[1[2]]", "n 1", "n\n", "n[0000000000000000001]", "a[1][1][1][1][1][1][1][1][1]b"}) {
    const Status status = ExpandNodeList(list).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << list << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr("is not a list of nodes: "));
  }
}

TEST(NodeList, OneWithoutEndTakesNoMemory) {
  for (const char* list : {"n[0-999999999999999999]", "n[0-99999][0-99999][0-99999]", "n[1-65537]"})
    EXPECT_TRUE(absl::IsResourceExhausted(ExpandNodeList(list).status())) << list;
  EXPECT_EQ(ExpandNodeList("n[1-65536]").value().size(), kMaxNodes);
  // Long names, too.
  EXPECT_TRUE(absl::IsResourceExhausted(ExpandNodeList(std::string(1000, 'x') + "[1-65000]").status()));
}

TEST(TasksPerNode, AreExpanded) {
  EXPECT_THAT(ExpandCounts("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(ExpandCounts("4").value(), ElementsAre(4));
  EXPECT_THAT(ExpandCounts("1,2,0").value(), ElementsAre(1, 2, 0));
}

TEST(TasksPerNode, WhatIsMalformedIsSaid) {
  for (const char* counts :
       {"", "x", "2(x", "2(x3", "2(3)", "2(x0)", "-1", "2,,1", "2(x3)4", "70000", "99999999999999999999"})
    EXPECT_TRUE(absl::IsInvalidArgument(ExpandCounts(counts).status())) << counts;
  EXPECT_TRUE(absl::IsResourceExhausted(ExpandCounts("1(x999999999999)").status()));
}

}  // namespace
}  // namespace millrace::launch
