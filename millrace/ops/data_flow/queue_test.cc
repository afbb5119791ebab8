// Queues between steps: blocking, closing, cancelling, and nothing lost under load.
#include <atomic>
#include <numeric>

#include "millrace/base/cancellation.h"
#include "tests/ops/data_flow_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class QueueTest : public DataFlowTest {
 protected:
  Endpoint MakeQueue(int capacity, const char* op = "FIFOQueueV2", AttrList more = {}) {
    AttrList attrs = {{"component_types", std::vector<DType>{DType::kInt32}},
                      {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}},
                      {"capacity", capacity}};
    for (auto& a : more) attrs.push_back(std::move(a));
    return Endpoint{b_.AddNode(op, {}, std::move(attrs), "q"), 0};
  }
  Node* Enqueue(Endpoint queue, int32_t v) { return b_.AddNode("QueueEnqueueV2", {queue, Int(v)}); }
  Node* Dequeue(Endpoint queue) {
    return b_.AddNode("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kInt32}}});
  }
  Node* DequeueMany(Endpoint queue, int n, const char* op = "QueueDequeueManyV2") {
    return b_.AddNode(op, {queue, Int(n)}, {{"component_types", std::vector<DType>{DType::kInt32}}});
  }
  Node* Close(Endpoint queue, bool cancel = false) {
    return b_.AddNode("QueueCloseV2", {queue}, {{"cancel_pending_enqueues", cancel}});
  }
  Node* Size(Endpoint queue) { return b_.AddNode("QueueSizeV2", {queue}); }
};

TEST_F(QueueTest, ADequeueWaitsForAnEnqueueOfAnotherStep) {
  const Endpoint q = MakeQueue(10);
  Node* const enqueue = Enqueue(q, 7);
  Node* const dequeue = Dequeue(q);
  Open();
  std::vector<Tensor> got;
  Background waiting([&] {
    auto result = Get(dequeue);
    if (result.ok()) got = *result;
    return result.status();
  });
  AwaitWaits(1);
  const Wait wait = waits_->List()[0];
  EXPECT_EQ(wait.node, dequeue->name());
  EXPECT_THAT(wait.what, HasSubstr("FIFOQueue 'q'"));
  ASSERT_TRUE(Do(enqueue).ok());
  ASSERT_TRUE(waiting.Result().ok());
  EXPECT_EQ(got[0].scalar<int32_t>(), 7);
  EXPECT_TRUE(waits_->List().empty());
}

TEST_F(QueueTest, AFullQueueHoldsAnEnqueueUntilThereIsRoom) {
  const Endpoint q = MakeQueue(1);
  Node* const first = Enqueue(q, 1);
  Node* const second = Enqueue(q, 2);
  Node* const dequeue = Dequeue(q);
  Open();
  ASSERT_TRUE(Do(first).ok());
  Background waiting([&] { return Do(second); });
  AwaitWaits(1);
  EXPECT_THAT(Values<int32_t>(dequeue), ElementsAre(1));
  EXPECT_TRUE(waiting.Result().ok());
  EXPECT_THAT(Values<int32_t>(dequeue), ElementsAre(2));
}

TEST_F(QueueTest, ClosingTheSessionEndsAWait) {
  const Endpoint q = MakeQueue(1);
  Node* const dequeue = Dequeue(q);
  Open();
  Background waiting([&] { return Do(dequeue); });
  AwaitWaits(1);
  ASSERT_TRUE(session_->Close().ok());
  EXPECT_EQ(waiting.Result().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(waits_->List().empty());
}

TEST_F(QueueTest, ATimeOutEndsAWaitAndNamesIt) {
  const Endpoint q = MakeQueue(1);
  Node* const dequeue = Dequeue(q);
  Open();
  const Status status = Do(dequeue, {.timeout = absl::Milliseconds(20)});
  ExpectError(status, absl::StatusCode::kDeadlineExceeded, dequeue->name());
  EXPECT_TRUE(waits_->List().empty());
}

TEST_F(QueueTest, ACancelledBatchPutsBackWhatItHadTaken) {
  const Endpoint q = MakeQueue(10);
  Node* const one = Enqueue(q, 1);
  Node* const two = Enqueue(q, 2);
  Node* const batch = DequeueMany(q, 3);
  Node* const size = Size(q);
  Node* const dequeue = Dequeue(q);
  Open();
  ASSERT_TRUE(Do(one).ok());
  ASSERT_TRUE(Do(two).ok());
  CancellationManager cancel;
  Background waiting([&] { return Do(batch, {.cancellation = &cancel}); });
  AwaitWaits(1);
  EXPECT_THAT(Values<int32_t>(size), ElementsAre(0));
  cancel.StartCancel();
  EXPECT_EQ(waiting.Result().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Values<int32_t>(size), ElementsAre(2));
  EXPECT_THAT(Values<int32_t>(dequeue), ElementsAre(1));
}

TEST_F(QueueTest, ClosingWaitsForEnqueuesThatCameBefore) {
  const Endpoint q = MakeQueue(1);
  Node* const first = Enqueue(q, 1);
  Node* const second = Enqueue(q, 2);
  Node* const close = Close(q);
  Node* const dequeue = Dequeue(q);
  Open();
  ASSERT_TRUE(Do(first).ok());
  Background enqueuing([&] { return Do(second); });
  AwaitWaits(1);
  Background closing([&] { return Do(close); });
  AwaitWaits(2);
  EXPECT_THAT(Values<int32_t>(dequeue), ElementsAre(1));
  EXPECT_TRUE(enqueuing.Result().ok());
  EXPECT_TRUE(closing.Result().ok());
  EXPECT_THAT(Values<int32_t>(dequeue), ElementsAre(2));
  ExpectError(Do(dequeue), absl::StatusCode::kOutOfRange,
              "is closed and has insufficient elements (requested 1, current size 0)");
  ExpectError(Do(first), absl::StatusCode::kCancelled, "is closed");
  ExpectError(Do(close), absl::StatusCode::kCancelled, "already closed");
}

TEST_F(QueueTest, ClosingMayEndEnqueuesThatWait) {
  const Endpoint q = MakeQueue(1);
  Node* const enqueue = Enqueue(q, 1);
  Node* const close = Close(q, /*cancel=*/true);
  Node* const dequeue = Dequeue(q);
  Open();
  ASSERT_TRUE(Do(enqueue).ok());
  Background waiting([&] { return Do(enqueue); });
  AwaitWaits(1);
  ASSERT_TRUE(Do(close).ok());
  ExpectError(waiting.Result(), absl::StatusCode::kCancelled, "Enqueue operation was cancelled");
  EXPECT_THAT(Values<int32_t>(dequeue), ElementsAre(1));
}

TEST_F(QueueTest, ClosingGivesAWaitingBatchTheRest) {
  const Endpoint q = MakeQueue(10);
  Node* const enqueue = Enqueue(q, 5);
  Node* const up_to = DequeueMany(q, 4, "QueueDequeueUpToV2");
  Node* const close = Close(q);
  Open();
  ASSERT_TRUE(Do(enqueue).ok());
  std::vector<Tensor> got;
  Background waiting([&] {
    auto result = Get(up_to);
    if (result.ok()) got = *result;
    return result.status();
  });
  AwaitWaits(1);
  ASSERT_TRUE(Do(close).ok());
  ASSERT_TRUE(waiting.Result().ok());
  EXPECT_EQ(got[0].shape(), Shape({1}));
}

TEST_F(QueueTest, AShuffleQueueKeepsElementsUntilClosed) {
  const Endpoint q = MakeQueue(10, "RandomShuffleQueueV2", {{"min_after_dequeue", 2}, {"seed", 1}, {"seed2", 2}});
  Node* const enqueue = Enqueue(q, 5);
  Node* const dequeue = Dequeue(q);
  Node* const close = Close(q);
  Open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Do(enqueue).ok());
  ASSERT_TRUE(Do(dequeue).ok());
  Background waiting([&] { return Do(dequeue); });
  AwaitWaits(1);
  ASSERT_TRUE(Do(close).ok());
  EXPECT_TRUE(waiting.Result().ok());
  EXPECT_TRUE(Do(dequeue).ok());
}

TEST_F(QueueTest, DequeuesAreServedInTheOrderTheyCame) {
  const Endpoint q = MakeQueue(10);
  Node* const enqueue = Enqueue(q, 1);
  Node* const batch = DequeueMany(q, 2);
  Node* const one = Dequeue(q);
  Open();
  std::atomic<int> batches{0};
  Background first([&] {
    const Status status = Do(batch);
    ++batches;
    return status;
  });
  AwaitWaits(1);
  Background second([&] {
    const Status status = Do(one);
    EXPECT_EQ(batches.load(), 1);
    return status;
  });
  AwaitWaits(2);
  ASSERT_TRUE(Do(enqueue).ok());
  ASSERT_TRUE(Do(enqueue).ok());
  EXPECT_TRUE(first.Result().ok());
  ASSERT_TRUE(Do(enqueue).ok());
  EXPECT_TRUE(second.Result().ok());
}

// A batch that waits must not take what comes first: it is in the order of the priorities.
TEST_F(QueueTest, ABatchOfAPriorityQueueIsInOrderHoweverItWasFilled) {
  for (const int capacity : {10, 2}) {
    const Endpoint q = b_.Op("PriorityQueueV2", {},
                             {{"component_types", std::vector<DType>{DType::kInt32}},
                              {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}},
                              {"capacity", capacity}},
                             absl::StrCat("q", capacity));
    const std::vector<DType> types = {DType::kInt64, DType::kInt32};
    Node* const three = b_.AddNode("QueueDequeueManyV2", {q, Int(3)}, {{"component_types", types}});
    std::vector<Node*> fill;
    for (const int64_t p : {7, 9, 4}) {
      fill.push_back(b_.AddNode("QueueEnqueueV2", {q, b_.Scalar<int64_t>(p), Int(static_cast<int32_t>(p))}));
    }
    Open();
    std::vector<Tensor> got;
    Background waiting([&] {
      auto result = Get(three);
      if (result.ok()) got = *result;
      return result.status();
    });
    AwaitWaits(1);
    for (Node* enqueue : fill) ASSERT_TRUE(Do(enqueue).ok());
    ASSERT_TRUE(waiting.Result().ok());
    EXPECT_THAT(got[0].flat<int64_t>(), ElementsAre(4, 7, 9)) << "capacity " << capacity;
  }
}

TEST_F(QueueTest, TwoNodesThatShareANameMustAgree) {
  Node* const a = Handle(
      "FIFOQueueV2", {{"component_types", std::vector<DType>{DType::kInt32}}, {"capacity", 3}, {"shared_name", "s"}});
  Node* const b = Handle(
      "FIFOQueueV2", {{"component_types", std::vector<DType>{DType::kInt32}}, {"capacity", 4}, {"shared_name", "s"}});
  Node* const size_a = Size(Endpoint{a, 0});
  Node* const size_b = Size(Endpoint{b, 0});
  Open();
  ASSERT_TRUE(Get(size_a).ok());
  ExpectError(Get(size_b).status(), absl::StatusCode::kInvalidArgument, "has capacity 3 but requested capacity was 4");
}

TEST_F(QueueTest, TheReferenceOfAQueueReadsAsItsName) {
  Node* const q = Handle("FIFOQueue", {{"component_types", std::vector<DType>{DType::kInt32}}, {"shared_name", "s"}});
  Open();
  EXPECT_THAT(Values<std::string>(q), ElementsAre("localhost", "s"));
}

// Several producers and consumers on a queue smaller than what is in flight: what goes in comes
// out, once.
TEST_F(QueueTest, NothingIsLostOrDoubledUnderLoad) {
  constexpr int kThreads = 4, kEach = 60;
  const Endpoint q = MakeQueue(3);
  Node* const x = b_.AddNode("Placeholder", {}, {{"dtype", DType::kInt32}}, "x");
  Node* const enqueue = b_.AddNode("QueueEnqueueV2", {q, Endpoint{x, 0}});
  Node* const rows = b_.AddNode("Placeholder", {}, {{"dtype", DType::kInt32}}, "rows");
  Node* const enqueue_many = b_.AddNode("QueueEnqueueManyV2", {q, Endpoint{rows, 0}});
  Node* const one = Dequeue(q);
  Node* const batch = DequeueMany(q, 5);
  Node* const close = Close(q);
  Node* const rest = DequeueMany(q, 100, "QueueDequeueUpToV2");
  Open(/*inter_op_threads=*/2);

  std::vector<std::thread> producers, consumers;
  std::vector<std::vector<int>> seen(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    producers.emplace_back([&, t] {
      for (int i = 0; i < kEach; i += 2) {
        const int v = t * kEach + i;
        std::vector<Tensor> none;
        if (t % 2 == 0) {
          for (int d = 0; d < 2; ++d) {
            ASSERT_TRUE(
                session_->Run({}, {{"x", Tensor::Scalar<int32_t>(v + d)}}, {}, {enqueue->name()}, &none, nullptr).ok());
          }
        } else {
          ASSERT_TRUE(
              session_->Run({}, {{"rows", Tensor::Of<int32_t>({v, v + 1})}}, {}, {enqueue_many->name()}, &none, nullptr)
                  .ok());
        }
      }
    });
    consumers.emplace_back([&, t] {
      while (true) {
        const auto got = Get(t % 2 == 0 ? one : batch);
        if (!got.ok()) {
          EXPECT_EQ(got.status().code(), absl::StatusCode::kOutOfRange) << got.status();
          return;
        }
        for (int32_t v : (*got)[0].flat<int32_t>()) seen[t].push_back(v);
      }
    });
  }
  for (std::thread& thread : producers) thread.join();
  ASSERT_TRUE(Do(close).ok());
  for (std::thread& thread : consumers) thread.join();
  std::vector<int> all;
  for (const auto& s : seen) all.insert(all.end(), s.begin(), s.end());
  const auto left = Get(rest);
  if (left.ok()) {
    for (int32_t v : (*left)[0].flat<int32_t>()) all.push_back(v);
  }
  std::sort(all.begin(), all.end());
  std::vector<int> expected(kThreads * kEach);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

}  // namespace
}  // namespace millrace
