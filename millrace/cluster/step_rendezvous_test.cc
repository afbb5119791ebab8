#include "millrace/cluster/step_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/graph/partition.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kKey[] =
    "/job:ps/replica:0/task:0/device:CPU:0;56d93a2aa9cece36;/job:worker/replica:0/task:0/device:CPU:0;edge_4_w/read;18186195969791715286:2";

TEST(ParsedKeyTest, GivesTheParts) {
  const ParsedKey key = ParsedKey::Parse(kKey).value();
  EXPECT_EQ(key.send_task, "/job:ps/replica:0/task:0");
  EXPECT_EQ(key.recv_task, "/job:worker/replica:0/task:0");
  EXPECT_EQ(key.tensor, "edge_4_w/read");
  EXPECT_EQ(key.incarnation, 0x56d93a2aa9cece36u);
}

TEST(ParsedKeyTest, SaysWhatIsNoKey) {
  const std::string good = kKey;
  for (const std::string& bad : {std::string(), good + ";", good.substr(1, good.size() / 2), std::string("a;b;c;d;e"),
                                 std::string(kKey).replace(good.find("56d9"), 1, "x"), good + "x", good.substr(0, good.rfind(':'))}) {
    const StatusOr<ParsedKey> key = ParsedKey::Parse(bad);
    ASSERT_FALSE(key.ok()) << bad;
    EXPECT_TRUE(absl::IsInvalidArgument(key.status()));
    EXPECT_THAT(std::string(key.status().message()), HasSubstr("rendezvous key"));
  }
}

TEST(StepRendezvousTest, ListsWhatTheClientHasNotGiven) {
  WaitRegistry waits;
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  const std::string key = RendezvousKeyText("/job:w/replica:0/task:0/device:CPU:0", 1, "/job:w/replica:0/task:0/device:CPU:0", "x:0");
  StatusOr<RendezvousItem> got = Internal("nothing");
  step->Recv(key, [&](StatusOr<RendezvousItem> item) { got = std::move(item); });
  ASSERT_EQ(waits.List().size(), 1u);
  EXPECT_EQ(waits.List()[0].node, "x:0");
  EXPECT_TRUE(step->HasWaiters());
  ASSERT_TRUE(step->Send(key, {Tensor::Scalar<float>(3), false}).ok());
  EXPECT_EQ(got->tensor.scalar<float>(), 3);
  EXPECT_TRUE(waits.List().empty());
  EXPECT_TRUE(step->IsEmpty());
}

TEST(StepRendezvousTest, AnAbortEndsWaitsAndIsWhatLaterOnesGet) {
  WaitRegistry waits;
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  Status first, second;
  step->RecvLocal(kKey, [&](StatusOr<RendezvousItem> item) { first = item.status(); });
  step->Abort(Unavailable("the ps is gone"));
  step->RecvLocal(kKey, [&](StatusOr<RendezvousItem> item) { second = item.status(); });
  EXPECT_THAT(std::string(first.message()), HasSubstr("the ps is gone"));
  EXPECT_THAT(std::string(second.message()), HasSubstr("the ps is gone"));
  EXPECT_TRUE(absl::IsUnavailable(first) && absl::IsUnavailable(second));
}

}  // namespace
}  // namespace millrace
