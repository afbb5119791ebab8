#include "millrace/train/queue_inputs.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Runs `fetches` until the end of the input, with the threads of the graph's queues.
std::vector<Tensors> RunToTheEnd(const Scope& scope, const std::vector<Output>& fetches, int most = 1000) {
  const Operation init = LocalVariablesInitializer(scope);
  EXPECT_EQ(scope.status(), absl::OkStatus());
  if (!scope.ok()) return {};
  ClientSession session = ClientSession::Create(scope).value();
  EXPECT_EQ(session.Run(init), absl::OkStatus());
  Coordinator coordinator;
  EXPECT_EQ(StartQueueRunners(scope, &session, &coordinator), absl::OkStatus());
  std::vector<Tensors> all;
  while (static_cast<int>(all.size()) < most) {
    StatusOr<Tensors> results = session.Run(fetches);
    if (!results.ok()) {
      EXPECT_EQ(results.status().code(), absl::StatusCode::kOutOfRange) << results.status();
      break;
    }
    all.push_back(*std::move(results));
  }
  coordinator.RequestStop();
  EXPECT_EQ(coordinator.Join(), absl::OkStatus());
  return all;
}

std::vector<int> Numbers(const std::vector<Tensors>& runs, int i = 0) {
  std::vector<int> numbers;
  for (const Tensors& run : runs) {
    const auto values = run[i].flat<int32_t>();
    numbers.insert(numbers.end(), values.begin(), values.end());
  }
  return numbers;
}

TEST(QueueInputs, ProducersGiveEachElementInEachEpoch) {
  const Scope s = Scope::NewRoot();
  const queues::InputQueue files = queues::StringInputProducer(s, {"a", "b", "c"}, {.num_epochs = 2, .shuffle = false});
  std::string text;
  for (const Tensors& run : RunToTheEnd(s, files.Dequeue(s))) text += run[0].scalar<std::string>();
  EXPECT_EQ(text, "abcabc");

  const Scope shuffled = Scope::NewRoot();
  const queues::InputQueue range = queues::RangeInputProducer(shuffled, 20, {.num_epochs = 2, .seed = 5});
  std::vector<int> numbers = Numbers(RunToTheEnd(shuffled, range.Dequeue(shuffled)));
  ASSERT_THAT(numbers, SizeIs(40));
  std::vector<int> first(numbers.begin(), numbers.begin() + 20), second(numbers.begin() + 20, numbers.end());
  EXPECT_NE(first, second);
  std::vector<int> sorted(20);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(first, sorted);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, sorted);
  EXPECT_EQ(second, sorted);
}

TEST(QueueInputs, SlicesKeepRowsTogether) {
  const Scope s = Scope::NewRoot();
  const std::vector<Output> row = queues::SliceInputProducer(
      s, {ops::Const(s, {{1, 2}, {3, 4}, {5, 6}}), ops::Const(s, {12, 34, 56})}, {.num_epochs = 1});
  ASSERT_THAT(row, SizeIs(2));
  EXPECT_EQ(row[0].shape(), PartialShape({2}));
  const std::vector<Tensors> runs = RunToTheEnd(s, row);
  ASSERT_THAT(runs, SizeIs(3));
  for (const Tensors& run : runs) {
    EXPECT_EQ(10 * run[0].data<int32_t>()[0] + run[0].data<int32_t>()[1], run[1].scalar<int32_t>());
  }
}

// The numbers 0 to n - 1.
Output Range(const Scope& s, int n) {
  return queues::RangeInputProducer(s, n, {.num_epochs = 1, .shuffle = false}).Dequeue(s)[0];
}

TEST(QueueInputs, BatchesAreInOrderAndTheLastMayBeSmaller) {
  for (const bool smaller : {false, true}) {
    const Scope s = Scope::NewRoot();
    const std::vector<Output> batch = queues::Batch(s, {Range(s, 10)}, 4, {.allow_smaller_final_batch = smaller});
    ASSERT_THAT(batch, SizeIs(1));
    EXPECT_EQ(batch[0].shape(), PartialShape({smaller ? -1 : 4}));
    const std::vector<Tensors> runs = RunToTheEnd(s, batch);
    ASSERT_THAT(runs, SizeIs(smaller ? 3 : 2));
    EXPECT_THAT(Numbers({runs[1]}), ElementsAre(4, 5, 6, 7));
    if (smaller) {
      EXPECT_THAT(Numbers({runs[2]}), ElementsAre(8, 9));
    }
  }
}

TEST(QueueInputs, OnlyWhatIsKeptIsEnqueued) {
  const Scope s = Scope::NewRoot();
  const Output number = Range(s, 10);
  const Output even = ops::Equal(s, ops::FloorMod(s, number, 2), 0);
  const std::vector<Output> batch = queues::Batch(s, {number}, 5, {.keep_input = even});
  EXPECT_THAT(Numbers(RunToTheEnd(s, batch)), ElementsAre(0, 2, 4, 6, 8));
}

TEST(QueueInputs, ManyAtOnceAndPaddedAndJoined) {
  const Scope s = Scope::NewRoot();
  // Each number as a vector of as many elements.
  const Output n = Range(s, 4);
  const Output row = ops::Fill(s, ops::Reshape(s, n, {1}), n);
  const std::vector<Output> padded = queues::Batch(s, {ops::EnsureShape(s, row, {-1})}, 4, {.dynamic_pad = true});
  ASSERT_THAT(padded, SizeIs(1));
  EXPECT_THAT(Numbers(RunToTheEnd(s, padded)), ElementsAre(0, 0, 0, 1, 0, 0, 2, 2, 0, 3, 3, 3));

  const Scope many = Scope::NewRoot();
  const Output pair = ops::Pack(many, {Range(many, 4), ops::Const(many, 7)});
  const std::vector<Output> rows = queues::Batch(many, {pair}, 4, {.enqueue_many = true});
  EXPECT_THAT(Numbers(RunToTheEnd(many, rows)), ElementsAre(0, 7, 1, 7, 2, 7, 3, 7));

  const Scope joined = Scope::NewRoot();
  const std::vector<Output> both =
      queues::BatchJoin(joined, {{Range(joined, 3)}, {Range(joined, 3) + 10}}, 6, {.capacity = 6});
  std::vector<int> numbers = Numbers(RunToTheEnd(joined, both));
  std::sort(numbers.begin(), numbers.end());
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 10, 11, 12));
}

TEST(QueueInputs, AShuffledBatchHasEachExampleOnce) {
  for (const bool join : {false, true}) {
    const Scope s = Scope::NewRoot();
    s.SetRandomSeed(1);
    const queues::ShuffleBatchOptions options{.num_threads = 2, .seed = 3, .allow_smaller_final_batch = true};
    const std::vector<Output> batch =
        join ? queues::ShuffleBatchJoin(s, {{Range(s, 25)}, {Range(s, 25) + 25}}, 8, 40, 20, options)
             : queues::ShuffleBatch(s, {Range(s, 50)}, 8, 40, 20, options);
    const std::vector<int> numbers = Numbers(RunToTheEnd(s, batch));
    EXPECT_THAT(numbers, SizeIs(50));
    EXPECT_THAT(std::set<int>(numbers.begin(), numbers.end()), SizeIs(50));
    EXPECT_FALSE(std::is_sorted(numbers.begin(), numbers.end()));
  }
}

TEST(QueueInputs, AMonitoredSessionRunsThem) {
  const Scope s = Scope::NewRoot();
  GlobalStep(s);
  const std::vector<Output> batch = queues::Batch(s, {Range(s, 6)}, 3);
  ASSERT_EQ(s.status(), absl::OkStatus());
  const auto session = MonitoredTrainingSession(s, {}).value();
  std::vector<int> numbers;
  while (!session->ShouldStop()) {
    const StatusOr<Tensors> run = session->Run({batch[0]});
    if (absl::IsOutOfRange(run.status())) break;
    ASSERT_EQ(run.status(), absl::OkStatus());
    const std::vector<int> values = Numbers({*run});
    numbers.insert(numbers.end(), values.begin(), values.end());
  }
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(QueueInputs, MistakesAreNamed) {
  const auto message = [](auto build) {
    const Scope s = Scope::NewRoot();
    build(s);
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  EXPECT_THAT(message([](const Scope& s) { queues::StringInputProducer(s, Tensor(DType::kString, Shape({0}))); }),
              HasSubstr("string_input_producer: needs a vector of strings that is not empty, not string[0]"));
  EXPECT_THAT(message([](const Scope& s) { queues::RangeInputProducer(s, 3, {.num_epochs = 0}); }),
              HasSubstr("number of epochs is 0"));
  EXPECT_THAT(message([](const Scope& s) { queues::Batch(s, {}, 3); }), HasSubstr("batch: there are no tensors"));
  EXPECT_THAT(message([](const Scope& s) { queues::Batch(s, {Range(s, 3)}, 0); }), HasSubstr("batch size is 0"));
  EXPECT_THAT(message([](const Scope& s) { queues::Batch(s, {ops::Placeholder(s, DType::kFloat)}, 3); }),
              HasSubstr("the shape of an example must be known, but Placeholder:0"));
  EXPECT_THAT(message([](const Scope& s) { queues::ShuffleBatch(s, {Range(s, 3)}, 3, 10, 10); }),
              HasSubstr("min_after_dequeue is 10; it must be below the capacity, 10"));
  EXPECT_THAT(message([](const Scope& s) {
                queues::BatchJoin(s, {{ops::Const(s, 1)}, {ops::Const(s, 1.0f)}}, 2);
              }),
              HasSubstr("is float[], but that of the first list int32[]"));
  EXPECT_THAT(message([](const Scope& s) {
                queues::SliceInputProducer(s, {ops::Const(s, {1, 2}), ops::Const(s, {1})});
              }),
              HasSubstr("does not have as many rows"));
}

}  // namespace
}  // namespace millrace
