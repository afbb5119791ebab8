#include "millrace/cluster/blamed_task.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr char kPs[] = "/job:ps/replica:0/task:0", kWorker[] = "/job:worker/replica:0/task:1";

TEST(BlamedTaskTest, TheFirstBlameStaysWithTheErrorAndItsPrefixes) {
  const Status error = BlameTask(Unavailable("it is gone"), kPs);
  EXPECT_EQ(BlamedTask(error), kPs);
  EXPECT_EQ(BlamedTask(BlameTask(error, kWorker)), kPs);
  EXPECT_EQ(BlamedTask(WithSuffix(WithPrefix("node x: ", error), " (step 7)")), kPs);
}

TEST(BlamedTaskTest, NobodyIsBlamedForWhatNobodyNamed) {
  EXPECT_EQ(BlamedTask(Unavailable("task ", kPs, " is gone")), "");
  EXPECT_EQ(BlamedTask(absl::OkStatus()), "");
  EXPECT_EQ(BlameTask(absl::OkStatus(), kPs), absl::OkStatus());
}

}  // namespace
}  // namespace millrace
