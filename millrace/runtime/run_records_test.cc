#include "millrace/runtime/run_records.h"

#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

RunIdentity RunOf(uint64_t client, int64_t number, int64_t attempt = 0) {
  return {.client = client, .number = number, .oldest = number, .attempt = attempt};
}

NodeOutcome OutcomeOfBytes(size_t bytes) {
  NodeOutcome outcome;
  outcome.outputs.push_back(Tensor(DType::kInt8, Shape({static_cast<int64_t>(bytes)})));
  return outcome;
}

// Begins an attempt that does not have to wait.
std::shared_ptr<RunRecord> BeginNow(RunRecords& records, const RunIdentity& run) {
  StatusOr<RunRecords::Attempt> attempt = records.Begin(run, [](const Status&) {});
  EXPECT_TRUE(attempt.ok()) << attempt.status();
  EXPECT_FALSE(attempt->waits);
  return attempt->record;
}

void RecordOne(RunRecords& records, const RunIdentity& run, size_t bytes) {
  const std::shared_ptr<RunRecord> record = BeginNow(records, run);
  record->Complete(record->Enter(7), OutcomeOfBytes(bytes));
  records.End(*record);
}

TEST(RunRecordsTest, ALaterAttemptSeesWhatTheEarlierOneDidInTheSameOrder) {
  RunRecords records;
  const std::shared_ptr<RunRecord> first = BeginNow(records, RunOf(1, 1));
  for (const size_t bytes : {1, 2}) {
    const RunRecord::Execution execution = first->Enter(7);
    EXPECT_FALSE(execution.earlier);
    first->Complete(execution, OutcomeOfBytes(bytes));
  }
  records.End(*first);
  const std::shared_ptr<RunRecord> second = BeginNow(records, RunOf(1, 1, 1));
  EXPECT_EQ(second->Enter(7).earlier->outputs[0].num_elements(), 1);
  EXPECT_EQ(second->Enter(7).earlier->outputs[0].num_elements(), 2);
  EXPECT_FALSE(second->Enter(7).earlier);
  EXPECT_FALSE(second->Enter(8).earlier);
  records.End(*second);
}

TEST(RunRecordsTest, AnAttemptWaitsForTheEndOfTheEarlierOne) {
  RunRecords records;
  const std::shared_ptr<RunRecord> first = BeginNow(records, RunOf(1, 1));
  Status second = Internal("not called"), third = Internal("not called");
  EXPECT_TRUE(records.Begin(RunOf(1, 1, 1), [&](Status status) { second = std::move(status); })->waits);
  EXPECT_TRUE(records.IsAwaited(*first));
  // A third one replaces the second.
  EXPECT_TRUE(records.Begin(RunOf(1, 1, 2), [&](Status status) { third = std::move(status); })->waits);
  EXPECT_EQ(second.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(third.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(records.Begin(RunOf(1, 1, 1), nullptr).status().code(), absl::StatusCode::kAborted);
  records.End(*first);
  EXPECT_EQ(third, absl::OkStatus());
  EXPECT_FALSE(records.IsAwaited(*first));
  records.End(*first);
  BeginNow(records, RunOf(1, 1, 3));
}

TEST(RunRecordsTest, AWaitCanBeGivenUp) {
  RunRecords records;
  const std::shared_ptr<RunRecord> first = BeginNow(records, RunOf(1, 1));
  Status second;
  const RunRecords::Attempt waiting =
      *records.Begin(RunOf(1, 1, 1), [&](Status status) { second = std::move(status); });
  records.GiveUp(*waiting.record, RunOf(1, 1, 1), Cancelled("enough"));
  EXPECT_EQ(second.code(), absl::StatusCode::kCancelled);
  records.End(*first);
  records.End(*BeginNow(records, RunOf(1, 1, 2)));
}

TEST(RunRecordsTest, OutputsBeyondTheLimitAreNotKept) {
  RunRecords records({.bytes_per_run = 10'000, .bytes = 100'000});
  const std::shared_ptr<RunRecord> record = BeginNow(records, RunOf(1, 1));
  record->Complete(record->Enter(7), OutcomeOfBytes(9000));
  record->Complete(record->Enter(8), OutcomeOfBytes(1100));
  EXPECT_EQ(records.bytes(), 9000 + sizeof(NodeOutcome));
  records.End(*record);
  const std::shared_ptr<RunRecord> again = BeginNow(records, RunOf(1, 1, 1));
  EXPECT_TRUE(again->Enter(7).earlier);
  EXPECT_FALSE(again->Enter(8).earlier);
  records.End(*again);
}

TEST(RunRecordsTest, TheClientThatWasSilentForLongestIsForgotten) {
  RunRecords records({.clients = 3});
  for (uint64_t client = 1; client <= 3; ++client) RecordOne(records, RunOf(client, 1), 8);
  RecordOne(records, RunOf(1, 1, 1), 8);
  RecordOne(records, RunOf(4, 1), 8);
  EXPECT_EQ(records.size(), 3u);
  EXPECT_TRUE(BeginNow(records, RunOf(1, 1, 2))->Enter(7).earlier);
  EXPECT_FALSE(BeginNow(records, RunOf(2, 1, 2))->Enter(7).earlier);
}

TEST(RunRecordsTest, AClientWithTooManyOpenRunsIsRefused) {
  RunRecords records({.runs_per_client = 2});
  for (int64_t number = 1; number <= 2; ++number) BeginNow(records, {.client = 1, .number = number, .oldest = 1});
  const Status status = records.Begin({.client = 1, .number = 3, .oldest = 1}, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("may still repeat 2 runs"));
}

TEST(RunRecordsTest, NumbersThatNoClientReachesAreRefused) {
  RunRecords records;
  for (const RunIdentity& run : {RunOf(1, -1), RunOf(1, std::numeric_limits<int64_t>::max()), RunOf(1, 1, -1)}) {
    EXPECT_EQ(records.BeginRepeating(run), run.number);
    EXPECT_EQ(records.Begin(run, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(records.size(), 0u);
}

TEST(RunRecordsTest, MemoryIsBoundedOverManyRunsOfManyClients) {
  RunRecords records({.clients = 16, .bytes_per_run = 2000, .bytes = 8000});
  for (int64_t i = 1; i <= 100'000; ++i) RecordOne(records, RunOf(static_cast<uint64_t>(i % 100 + 1), i), 900);
  EXPECT_LE(records.size(), 16u);
  EXPECT_LE(records.bytes(), 8000u);
  EXPECT_GT(records.bytes(), 0u);
}

TEST(RunRecordsTest, ATaskThatRepeatsContinuesWhereItWas) {
  RunRecords records;
  EXPECT_EQ(records.BeginRepeating(RunOf(1, 5)), 5);
  for (int64_t number = 5; number <= 9; ++number) RecordOne(records, RunOf(1, number), 1);
  EXPECT_EQ(records.GoOnRepeating(RunOf(1, 10)), absl::OkStatus());
  // The client does not know how far it came.
  EXPECT_EQ(records.BeginRepeating(RunOf(1, 5, 1)), 9);
  EXPECT_EQ(records.GoOnRepeating(RunOf(1, 10)).code(), absl::StatusCode::kAborted);
  // It repeats by itself.
  const std::shared_ptr<RunRecord> record = BeginNow(records, RunOf(1, 5, 2));
  EXPECT_EQ(record->identity().number, 9);
  EXPECT_TRUE(record->Enter(7).earlier);
  records.End(*record);
  EXPECT_EQ(BeginNow(records, RunOf(1, 6))->identity().number, 10);
}

}  // namespace
}  // namespace millrace
