// Mutexes and session tensors: what golden cases do not show.
#include "millrace/base/cancellation.h"
#include "tests/ops/data_flow_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MutexLockTest : public DataFlowTest {
 protected:
  MutexLockTest() {
    mutex_ = {Handle("MutexV2", {{"shared_name", "m"}}), 0};
    // The first holder keeps its lock until the queue has an element.
    queue_ = {Handle("FIFOQueueV2", {{"component_types", std::vector<DType>{DType::kInt32}}}), 0};
    enqueue_ = b_.AddNode("QueueEnqueueV2", {queue_, Int(1)}, {{"Tcomponents", std::vector<DType>{DType::kInt32}}});
    const Endpoint lock = b_.Op("MutexLock", {mutex_});
    b_.control_inputs = {lock.node};
    Node* const wait = b_.AddNode("QueueDequeueV2", {queue_}, {{"component_types", std::vector<DType>{DType::kInt32}}});
    b_.control_inputs = {wait};
    holder_ = b_.AddNode("ConsumeMutexLock", {lock});
    b_.control_inputs = {};
    next_ = b_.AddNode("ConsumeMutexLock", {b_.Op("MutexLock", {mutex_})});
  }
  Endpoint mutex_, queue_;
  Node *enqueue_, *holder_, *next_;
};

TEST_F(MutexLockTest, OneStepWaitsForTheLockOfAnother) {
  Open(4);
  Background holder([&] { return Do(holder_); });
  AwaitWaits(1);
  Background next([&] { return Do(next_); });
  AwaitWaits(2);
  EXPECT_THAT(waits_->List()[1].what, HasSubstr("mutex 'm'"));
  ASSERT_TRUE(Do(enqueue_).ok());
  EXPECT_TRUE(holder.Result().ok());
  EXPECT_TRUE(next.Result().ok());
}

TEST_F(MutexLockTest, ACancelledWaiterLeavesTheLine) {
  Open(4);
  Background holder([&] { return Do(holder_); });
  AwaitWaits(1);
  CancellationManager cancel;
  Background next([&] { return Do(next_, {.cancellation = &cancel}); });
  AwaitWaits(2);
  cancel.StartCancel();
  EXPECT_EQ(next.Result().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(Do(enqueue_).ok());
  EXPECT_TRUE(holder.Result().ok());
  EXPECT_TRUE(Do(next_).ok());
}

TEST_F(MutexLockTest, ACancelledHolderGivesTheLockBack) {
  Open(4);
  CancellationManager cancel;
  Background holder([&] { return Do(holder_, {.cancellation = &cancel}); });
  AwaitWaits(1);
  cancel.StartCancel();
  EXPECT_EQ(holder.Result().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Do(next_).ok());
}

using SessionTensorTest = DataFlowTest;

TEST_F(SessionTensorTest, LivesUntilItIsDeleted) {
  Node* const keep = b_.AddNode("GetSessionHandle", {b_.Const(Tensor::Of<float>({1, 2}))});
  const Endpoint handle = {b_.AddNode("Placeholder", {}, {{"dtype", DType::kString}}, "handle"), 0};
  Node* const get = b_.AddNode("GetSessionTensor", {handle}, {{"dtype", DType::kFloat}});
  Node* const as_ints = b_.AddNode("GetSessionTensor", {handle}, {{"dtype", DType::kInt32}});
  Node* const drop = b_.AddNode("DeleteSessionTensor", {handle});
  Open();
  const Tensor kept = Get(keep).value()[0];
  EXPECT_THAT(kept.scalar<std::string>(), HasSubstr("GetSessionHandle;"));
  const std::vector<Feed> feeds = {{"handle", kept}};
  EXPECT_THAT(Get(get, {}, feeds).value()[0].flat<float>(), ElementsAre(1, 2));
  ExpectError(Get(as_ints, {}, feeds).status(), absl::StatusCode::kInvalidArgument, "is of type float");
  std::vector<Tensor> none;
  ASSERT_TRUE(session_->Run({}, feeds, {}, {drop->name()}, &none, nullptr).ok());
  ExpectError(Get(get, {}, feeds).status(), absl::StatusCode::kInvalidArgument, "is not in the session store");
}

}  // namespace
}  // namespace millrace
