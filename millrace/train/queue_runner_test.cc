#include "millrace/train/queue_runner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct CountingInput {
  Scope scope = Scope::NewRoot();
  Output queue, next;
  Operation enqueue, close, cancel;
};

// A queue of `capacity` with an op that enqueues a counter, and fails when it exceeds `limit`.
CountingInput Counting(int capacity, float limit) {
  CountingInput in;
  in.queue = ops::FIFOQueueV2(in.scope, {DType::kFloat}, {.capacity = capacity});
  const Var counter(in.scope, "counter", 0.0f);
  const Output now = counter.Read(in.scope.WithControlDependencies({counter.AssignAdd(in.scope, 1.0f)}));
  const Operation check = ops::Assert(in.scope, ops::LessEqual(in.scope, now, limit), {now});
  in.enqueue = ops::QueueEnqueueV2(in.scope.WithControlDependencies({check}), in.queue, {now});
  in.close = ops::QueueCloseV2(in.scope, in.queue);
  in.cancel = ops::QueueCloseV2(in.scope, in.queue, {.cancel_pending_enqueues = true});
  in.next = ops::QueueDequeueV2(in.scope, in.queue, {DType::kFloat})[0];
  return in;
}

ClientSession Open(const Scope& scope) {
  const Operation init = GlobalVariablesInitializer(scope);
  ClientSession session = ClientSession::Create(scope).value();
  EXPECT_EQ(session.Run(init), absl::OkStatus());
  return session;
}

TEST(QueueRunner, FillsItsQueueUntilTheStop) {
  CountingInput in = Counting(2, 1e9);
  ClientSession session = Open(in.scope);
  Coordinator coordinator;
  ASSERT_EQ(QueueRunner({.name = "input", .enqueue_ops = {in.enqueue}}).Start(&session, &coordinator),
            absl::OkStatus());
  for (int i = 1; i <= 10; ++i) EXPECT_EQ(session.Run({in.next}).value()[0].flat<float>()[0], i);
  EXPECT_THAT(coordinator.running(), ElementsAre("input"));
  // Its thread waits in an enqueue to the full queue, which nobody closes.
  coordinator.RequestStop();
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
}

TEST(QueueRunner, AnErrorStopsTheCoordinatorAndNamesTheRunner) {
  CountingInput in = Counting(10, 3);
  ClientSession session = Open(in.scope);
  Coordinator coordinator;
  ASSERT_EQ(
      QueueRunner({.name = "input", .enqueue_ops = {in.enqueue}, .cancel_op = in.cancel}).Start(&session, &coordinator),
      absl::OkStatus());
  EXPECT_TRUE(coordinator.WaitForStop());
  const Status status = coordinator.Join();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("input: "));
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
  // Cancelled: whoever takes from it learns of the end.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(session.Run({in.next}).ok());
  EXPECT_TRUE(absl::IsOutOfRange(session.Run({in.next}).status()));
}

TEST(QueueRunner, ClosesTheQueueAtTheEndOfAllItsInputs) {
  Scope scope = Scope::NewRoot();
  // Two threads move a closed queue's elements into another.
  const Output from = ops::FIFOQueueV2(scope, {DType::kFloat}, {.capacity = 10, .shared_name = "from"});
  const Output to = ops::FIFOQueueV2(scope, {DType::kFloat}, {.capacity = 10, .shared_name = "to"});
  const Operation fill = ops::QueueEnqueueManyV2(scope, from, {std::vector<float>{1, 2, 3, 4}});
  const Operation end = ops::QueueCloseV2(scope, from);
  const Operation move = ops::QueueEnqueueV2(scope, to, {ops::QueueDequeueV2(scope, from, {DType::kFloat})[0]});
  const Output next = ops::QueueDequeueV2(scope, to, {DType::kFloat})[0];
  AddQueueRunner(scope, QueueRunner({.name = "mover",
                                     .enqueue_ops = {move, move},
                                     .close_op = ops::QueueCloseV2(scope, to),
                                     .cancel_op = ops::QueueCloseV2(scope, to, {.cancel_pending_enqueues = true})}));
  ClientSession session = ClientSession::Create(scope).value();
  ASSERT_EQ(session.Run(fill), absl::OkStatus());
  ASSERT_EQ(session.Run(end), absl::OkStatus());
  Coordinator coordinator;
  ASSERT_EQ(StartQueueRunners(scope, &session, &coordinator), absl::OkStatus());
  // Its threads end by themselves, without a stop.
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
  EXPECT_FALSE(coordinator.ShouldStop());
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += session.Run({next}).value()[0].flat<float>()[0];
  EXPECT_EQ(sum, 10);
  EXPECT_TRUE(absl::IsOutOfRange(session.Run({next}).status()));
}

TEST(QueueRunner, TheGraphKeepsItsRunners) {
  CountingInput in = Counting(2, 1e9);
  AddQueueRunner(in.scope, QueueRunner({.name = "a", .enqueue_ops = {in.enqueue, in.enqueue}, .close_op = in.close}));
  const std::vector<QueueRunner> runners = QueueRunners(in.scope);
  ASSERT_EQ(runners.size(), 1);
  EXPECT_EQ(runners[0].options().name, "a");
  EXPECT_EQ(runners[0].options().enqueue_ops.size(), 2);
  EXPECT_EQ(runners[0].options().close_op.name(), in.close.name());
  EXPECT_TRUE(runners[0].options().cancel_op.empty());
  AddQueueRunner(in.scope, QueueRunner({.name = "bad", .enqueue_ops = {Operation()}}));
  EXPECT_THAT(in.scope.status().message(), HasSubstr("queue runner 'bad' has an empty op"));
}

TEST(QueueRunner, MisuseIsNamed) {
  CountingInput in = Counting(2, 1e9);
  ClientSession session = Open(in.scope);
  Coordinator coordinator;
  EXPECT_THAT(QueueRunner({.name = "idle"}).Start(&session, &coordinator).message(), HasSubstr("'idle' has no ops"));
  EXPECT_THAT(QueueRunner({.name = "empty", .enqueue_ops = {Operation()}}).Start(&session, &coordinator).message(),
              HasSubstr("'empty'"));
}

}  // namespace
}  // namespace millrace
