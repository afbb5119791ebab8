#include "millrace/cluster/step/step_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kSentKey[] =
    "/job:ps/replica:0/task:0/device:CPU:0;56d93a2aa9cece36;/job:worker/replica:0/task:0/device:CPU:0;edge_4_w/"
    "read;18186195969791715286:2";

TEST(StepRendezvousTest, ListsWhatTheClientHasNotGiven) {
  WaitRegistry waits;
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  const std::string key =
      RendezvousKeyText("/job:w/replica:0/task:0/device:CPU:0", 1, "/job:w/replica:0/task:0/device:CPU:0", "x:0");
  StatusOr<RendezvousItem> got = Internal("nothing");
  step->Recv(key, [&](StatusOr<RendezvousItem> item) { got = std::move(item); });
  ASSERT_EQ(waits.List().size(), 1u);
  EXPECT_EQ(waits.List()[0].node, "x:0");
  EXPECT_FALSE(step->IsEmpty());
  ASSERT_TRUE(step->Send(key, {Tensor::Scalar<float>(3), false}).ok());
  EXPECT_EQ(got->tensor.scalar<float>(), 3);
  EXPECT_TRUE(waits.List().empty());
  EXPECT_TRUE(step->IsEmpty());
}

TEST(StepRendezvousTest, AnAbortEndsWaitsAndIsWhatLaterOnesGet) {
  WaitRegistry waits;
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  Status first, second;
  step->RecvLocal(kSentKey, [&](StatusOr<RendezvousItem> item) { first = item.status(); });
  step->Abort(Unavailable("the ps is gone"));
  step->RecvLocal(kSentKey, [&](StatusOr<RendezvousItem> item) { second = item.status(); });
  EXPECT_THAT(std::string(first.message()), HasSubstr("the ps is gone"));
  EXPECT_THAT(std::string(second.message()), HasSubstr("the ps is gone"));
  EXPECT_TRUE(absl::IsUnavailable(first) && absl::IsUnavailable(second));
}

// Tensors that no line leads to wait in the task's own table, numbered or not.
TEST(StepRendezvousTest, WithoutALineATensorWaitsUntilItIsAskedFor) {
  WaitRegistry waits;
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  ASSERT_TRUE(step->SendSlot(0, kSentKey, {Tensor::Scalar<float>(5), false}).ok());
  EXPECT_FALSE(step->IsEmpty());
  float got = 0;
  step->RecvLocal(kSentKey, [&](StatusOr<RendezvousItem> item) { got = item->tensor.scalar<float>(); });
  EXPECT_EQ(got, 5);
  EXPECT_TRUE(step->IsEmpty());
}

TEST(StepRendezvousTest, ATensorOfATaskThatIsNotInTheClusterIsAnError) {
  WaitRegistry waits;
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  Status status;
  step->RecvSlot(-1, kSentKey, [&](StatusOr<RendezvousItem> item) { status = item.status(); });
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("which is not a task of this cluster"));
}

}  // namespace
}  // namespace millrace
