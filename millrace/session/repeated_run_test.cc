// Runs that are repeated under their identity, in a session of this process.
#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A variable `v` that `more` increases, a queue of numbers, an accumulator; and sessions that share their state.
class RepeatedRunTest : public ::testing::Test {
 protected:
  RepeatedRunTest() {
    v_ = b_.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "v"}},
               "v");
    b_.AddNode("AssignVariableOp", {v_, b_.Scalar(0.0f)}, {}, "init");
    b_.AddNode("AssignVariableOp", {v_, b_.Scalar(100.0f)}, {}, "restore");
    b_.AddNode("AssignAddVariableOp", {v_, b_.Scalar(1.0f)}, {}, "more");
    b_.Op("ReadVariableOp", {v_}, {{"dtype", DType::kFloat}}, "value");
    queue_ = b_.Op("FIFOQueueV2", {}, {{"component_types", kNumber}, {"shared_name", "numbers"}}, "queue");
    number_ = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "number");
    b_.AddNode("QueueEnqueueV2", {queue_, number_}, {}, "put");
    b_.Op("QueueDequeueV2", {queue_}, {{"component_types", kNumber}}, "take");
    b_.Op("QueueSizeV2", {queue_}, {}, "size");
    session_ = Open();
    EXPECT_EQ(session_->RunTargets({"init"}), absl::OkStatus());
  }

  std::unique_ptr<Session> Open() {
    EXPECT_EQ(b_.status(), absl::OkStatus());
    SessionOptions options;
    options.resources = resources_;
    options.waits = waits_;
    auto session = Session::Create(options).value();
    EXPECT_EQ(session->Extend(graph_), absl::OkStatus());
    return session;
  }
  StatusOr<std::vector<Tensor>> Run(const RunIdentity& run, const std::vector<std::string>& fetches,
                                    const std::vector<std::string>& targets = {}, Session* session = nullptr) {
    std::vector<Tensor> results;
    MR_RETURN_IF_ERROR((session == nullptr ? session_.get() : session)
                           ->Run(RunOptions{.identity = run}, {}, fetches, targets, &results, nullptr));
    return results;
  }
  Status More(const RunIdentity& run) { return Run(run, {}, {"more"}).status(); }
  float Value() { return session_->Run({"value"}).value()[0].scalar<float>(); }
  void Put(float number) {
    EXPECT_EQ(session_->Run({{"number", Tensor::Scalar(number)}}, {}, {"put"}).status(), absl::OkStatus());
  }
  bool Await(const std::function<bool()>& reached) {
    Notification never;
    for (int i = 0; i < 6000 && !reached(); ++i) never.WaitFor(absl::Milliseconds(5));
    return reached();
  }
  static RunIdentity Again(RunIdentity run) {
    ++run.attempt;
    return run;
  }

  const std::vector<DType> kNumber = {DType::kFloat};
  const std::shared_ptr<ResourceManager> resources_ = std::make_shared<ResourceManager>();
  const std::shared_ptr<WaitRegistry> waits_ = std::make_shared<WaitRegistry>();
  Graph graph_;
  GraphBuilder b_{&graph_};
  Endpoint v_, queue_, number_;
  std::unique_ptr<Session> session_;
};

TEST_F(RepeatedRunTest, AnUpdateIsAppliedOncePerIdentity) {
  RunIdentity run = RunIdentity::OfNewClient();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(More(run), absl::OkStatus());
    run = Again(run);
  }
  EXPECT_EQ(Value(), 1);
  ASSERT_EQ(More(run.Next()), absl::OkStatus());
  EXPECT_EQ(Value(), 2);
  ASSERT_EQ(More(RunIdentity::OfNewClient()), absl::OkStatus());
  ASSERT_EQ(More({}), absl::OkStatus());
  ASSERT_EQ(More({}), absl::OkStatus());
  EXPECT_EQ(Value(), 5);
}

TEST_F(RepeatedRunTest, AnotherSessionRecognisesTheRun) {
  const RunIdentity run = RunIdentity::OfNewClient();
  ASSERT_EQ(More(run), absl::OkStatus());
  session_ = Open();
  ASSERT_EQ(More(Again(run)), absl::OkStatus());
  EXPECT_EQ(Value(), 1);
}

// A training begins anew with an accumulator that has lived on: its gradients are gone, and workers give them again.
TEST_F(RepeatedRunTest, AGradientThatWasForgottenIsGivenAgain) {
  const Endpoint accumulator = b_.Op(
      "ConditionalAccumulator", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "g"}});
  b_.AddNode("AccumulatorApplyGradient", {accumulator, b_.Const(Tensor::Scalar<int64_t>(9)), b_.Scalar(1.0f)}, {},
             "give");
  b_.Op("AccumulatorNumAccumulated", {accumulator}, {}, "given");
  const Endpoint step = b_.Const(Tensor::Scalar<int64_t>(5));
  b_.AddNode("MillraceAccumulatorBegin", {accumulator, step, b_.Const(Tensor::Scalar(true))}, {}, "go_on");
  b_.AddNode("MillraceAccumulatorBegin", {accumulator, step, b_.Const(Tensor::Scalar(false))}, {}, "anew");
  session_ = Open();
  const auto given = [&] { return session_->Run({"given"}).value()[0].scalar<int32_t>(); };
  RunIdentity run = RunIdentity::OfNewClient();
  const auto give = [&] {
    EXPECT_EQ(Run(run, {}, {"give"}).status(), absl::OkStatus());
    run = Again(run);
  };
  give();
  EXPECT_EQ(given(), 1);
  ASSERT_EQ(session_->RunTargets({"go_on"}), absl::OkStatus());
  give();
  EXPECT_EQ(given(), 1);
  ASSERT_EQ(session_->RunTargets({"anew"}), absl::OkStatus());
  EXPECT_EQ(given(), 0);
  give();
  give();
  EXPECT_EQ(given(), 1);
}

TEST_F(RepeatedRunTest, WhatARestoreHasUndoneIsAppliedAgain) {
  const RunIdentity run = RunIdentity::OfNewClient();
  ASSERT_EQ(More(run), absl::OkStatus());
  ASSERT_EQ(session_->RunTargets({"restore"}), absl::OkStatus());
  ASSERT_EQ(More(Again(run)), absl::OkStatus());
  EXPECT_EQ(Value(), 101);
  // And once.
  ASSERT_EQ(More(Again(Again(run))), absl::OkStatus());
  EXPECT_EQ(Value(), 101);
}

TEST_F(RepeatedRunTest, AVariableThatWasDeletedAndMadeAgainGetsTheUpdate) {
  const RunIdentity run = RunIdentity::OfNewClient();
  ASSERT_EQ(More(run), absl::OkStatus());
  resources_->ClearContainer("");
  session_ = Open();
  ASSERT_EQ(session_->RunTargets({"init"}), absl::OkStatus());
  ASSERT_EQ(More(Again(run)), absl::OkStatus());
  EXPECT_EQ(Value(), 1);
}

TEST_F(RepeatedRunTest, AnAssignmentOfATrainingStepUndoesNothing) {
  const RunIdentity run = RunIdentity::OfNewClient(), other = RunIdentity::OfNewClient();
  ASSERT_EQ(More(run), absl::OkStatus());
  ASSERT_EQ(Run(other, {}, {"restore"}).status(), absl::OkStatus());
  ASSERT_EQ(More(Again(run)), absl::OkStatus());
  EXPECT_EQ(Value(), 100);
}

TEST_F(RepeatedRunTest, ARepeatedDequeueGetsTheSameElement) {
  for (const float number : {5.0f, 6.0f, 7.0f}) Put(number);
  const RunIdentity run = RunIdentity::OfNewClient();
  EXPECT_EQ(Run(run, {"take"}).value()[0].scalar<float>(), 5);
  EXPECT_EQ(Run(Again(run), {"take"}).value()[0].scalar<float>(), 5);
  EXPECT_EQ(Run(run.Next(), {"take"}).value()[0].scalar<float>(), 6);
  EXPECT_EQ(session_->Run({"size"}).value()[0].scalar<int32_t>(), 1);
}

TEST_F(RepeatedRunTest, OnlyWhatTheFirstAttemptDidNotDoIsDone) {
  const RunIdentity run = RunIdentity::OfNewClient();
  CancellationManager stop;
  std::thread first([&] {
    std::vector<Tensor> results;
    const RunOptions options{.cancellation = &stop, .identity = run};
    EXPECT_EQ(session_->Run(options, {}, {"take"}, {"more"}, &results, nullptr).code(), absl::StatusCode::kCancelled);
  });
  EXPECT_TRUE(Await([&] { return Value() == 1 && !waits_->List().empty(); }));
  stop.StartCancel();
  first.join();
  Put(9);
  EXPECT_EQ(Run(Again(run), {"take"}, {"more"}).value()[0].scalar<float>(), 9);
  EXPECT_EQ(Value(), 1);
}

TEST_F(RepeatedRunTest, AnAttemptThatStillRunsIsGivenUpBeforeTheNextBegins) {
  const RunIdentity run = RunIdentity::OfNewClient();
  Status first_status;
  std::thread first([&] { first_status = Run(run, {"take"}, {"more"}).status(); });
  EXPECT_TRUE(Await([&] { return Value() == 1 && !waits_->List().empty(); }));
  StatusOr<std::vector<Tensor>> second_result;
  std::thread second([&] { second_result = Run(Again(run), {"take"}, {"more"}); });
  first.join();
  EXPECT_EQ(first_status.code(), absl::StatusCode::kAborted) << first_status;
  EXPECT_THAT(std::string(first_status.message()), HasSubstr("was started again"));
  Put(9);
  second.join();
  ASSERT_EQ(second_result.status(), absl::OkStatus());
  EXPECT_EQ((*second_result)[0].scalar<float>(), 9);
  EXPECT_EQ(Value(), 1);
}

TEST_F(RepeatedRunTest, ALateAttemptIsRefused) {
  const RunIdentity run = RunIdentity::OfNewClient();
  ASSERT_EQ(More(Again(run)), absl::OkStatus());
  EXPECT_EQ(More(run).code(), absl::StatusCode::kAborted);
  ASSERT_EQ(More(run.Next()), absl::OkStatus());
  const Status late = More(Again(run));
  EXPECT_EQ(late.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(late.message()), HasSubstr("the client has gone on to run 2"));
  EXPECT_EQ(Value(), 2);
}

TEST_F(RepeatedRunTest, EachIterationOfALoopCountsByItself) {
  // while (i < 5) { v += 1 }
  const auto enter = [&](Endpoint e, bool constant) {
    return b_.Op("Enter", {e}, {{"frame_name", "loop"}, {"is_constant", constant}});
  };
  Node* merge = b_.AddNode("Merge", {enter(b_.Scalar<int32_t>(0), false), enter(b_.Scalar<int32_t>(0), false)});
  const Endpoint limit = enter(b_.Scalar<int32_t>(5), true), handle = enter(v_, true);
  const Endpoint go = b_.Op("LoopCond", {b_.Op("Less", {merge->output(0), limit})});
  Node* branch = b_.AddNode("Switch", {merge->output(0), go});
  const Endpoint i = b_.Op("Identity", {branch->output(1)});
  Node* update =
      b_.AddNode("AssignAddVariableOp", {handle, b_.Op("Cast", {b_.Op("OnesLike", {i})}, {{"DstT", DType::kFloat}})},
                 {}, "update_in_loop");
  b_.control_inputs = {update};
  Node* next = b_.AddNode("NextIteration", {b_.Add(i, b_.Op("OnesLike", {i}))});
  b_.control_inputs = {};
  graph_.SetInput(merge, 1, next->output(0));
  b_.Op("Exit", {branch->output(0)}, {}, "end");
  session_ = Open();
  const RunIdentity run = RunIdentity::OfNewClient();
  ASSERT_EQ(Run(run, {"end"}).status(), absl::OkStatus());
  EXPECT_EQ(Value(), 5);
  ASSERT_EQ(Run(Again(run), {"end"}).status(), absl::OkStatus());
  EXPECT_EQ(Value(), 5);
}

TEST_F(RepeatedRunTest, RecordsOfAcknowledgedRunsAreDropped) {
  for (int i = 0; i < 4; ++i) Put(static_cast<float>(i));
  RunIdentity run = RunIdentity::OfNewClient();
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(Run(run, {}, {"more"}).status(), absl::OkStatus());
    run = run.Next();
  }
  EXPECT_EQ(Value(), 100'000);
  EXPECT_EQ(resources_->runs().size(), 1u);
  const size_t of_one_update = resources_->runs().bytes();
  EXPECT_LE(of_one_update, 1000u);
  ASSERT_EQ(Run(run, {"take"}).status(), absl::OkStatus());
  EXPECT_EQ(resources_->runs().bytes(), of_one_update + sizeof(float));
  ASSERT_EQ(More(run.Next()), absl::OkStatus());
  EXPECT_EQ(resources_->runs().bytes(), of_one_update);
}

TEST_F(RepeatedRunTest, RepeatNumbersItsRunsAndContinuesWithTheOneThatFailed) {
  std::vector<int64_t> numbers, attempts;
  resources_->SetUpdateHook([&](const StateUpdate& update) {
    numbers.push_back(update.run.number);
    attempts.push_back(update.run.attempt);
  });
  for (int i = 0; i < 2; ++i) Put(static_cast<float>(i));
  b_.device.clear();
  Node* take_more =
      b_.AddNode("AssignAddVariableOp", {v_, b_.Op("QueueDequeueV2", {queue_}, {{"component_types", kNumber}}, "next")},
                 {}, "take_more");
  ASSERT_NE(take_more, nullptr);
  b_.AddNode("QueueCloseV2", {queue_}, {}, "close");
  session_ = Open();
  ASSERT_EQ(session_->RunTargets({"close"}), absl::OkStatus());
  auto callable = session_->MakeCallable({.targets = {"take_more"}}).value();
  RunIdentity run = RunIdentity::OfNewClient();
  run.attempt = 4;
  EXPECT_EQ(callable->Repeat({}, &run).code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(numbers, ElementsAre(1, 2));
  EXPECT_EQ(run.number, 3);
  EXPECT_EQ(run.oldest, 3);
  // The attempt belongs to the call, so that what an earlier call left behind is earlier than all of its runs.
  EXPECT_THAT(attempts, ElementsAre(4, 4));
  EXPECT_EQ(run.attempt, 4);
}

TEST_F(RepeatedRunTest, TheHookSeesUpdatesInTheOrderOfTheirApplication) {
  std::vector<uint64_t> sequences;
  int64_t running = 0;
  resources_->SetUpdateHook([&](const StateUpdate& update) {
    // Unguarded: the variable's lock excludes other calls.
    EXPECT_EQ(++running, 1);
    EXPECT_EQ(update.resources.size(), 1u);
    EXPECT_EQ(update.resources[0]->container, "localhost");
    EXPECT_EQ(update.resources[0]->name, "v");
    EXPECT_EQ(update.payload_bytes, sizeof(float));
    EXPECT_TRUE(update.run.given());
    EXPECT_EQ(update.origin.node->name(), "more");
    sequences.push_back(update.sequence);
    --running;
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      RunIdentity run = RunIdentity::OfNewClient();
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(More(run), absl::OkStatus());
        run = run.Next();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sequences.size(), 800u);
  EXPECT_TRUE(std::is_sorted(sequences.begin(), sequences.end()));
  EXPECT_EQ(Value(), 800);
}

}  // namespace
}  // namespace millrace
