// Ranks as threads, each with an engine over a worker group.
#include "millrace/strategy/horovod/engine.h"

#include <algorithm>
#include <functional>
#include <latch>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "millrace/api/client_session.h"
#include "millrace/api/gradients.h"
#include "millrace/api/op_call.h"
#include "millrace/base/file.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/strategy/horovod/lane_carrier.h"

namespace millrace::hvd {
namespace {

using Kind = NamedCollective::Kind;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NamedCollective Sum(const std::string& name, Tensor tensor) { return {.name = name, .tensor = std::move(tensor)}; }
Tensor Floats(int64_t count, float value) {
  Tensor tensor(DType::kFloat, Shape({count}));
  std::fill_n(tensor.data<float>(), count, value);
  return tensor;
}

class EngineTest : public ::testing::Test {
 protected:
  using Body = std::function<void(Engine& engine)>;

  // Runs `body` on each rank; all shut down afterwards, unless `body` returns early.
  void OnAll(int ranks, const Body& body, const EngineOptions& options = {}, bool shutdown = true) {
    std::vector<std::string> addresses;
    for (const int port : FreePorts(static_cast<size_t>(ranks))) addresses.push_back(absl::StrCat("localhost:", port));
    const ClusterSpec cluster = ClusterSpec::Of({{"worker", addresses}}).value();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        auto engine = Engine::Start(
            [&]() -> StatusOr<std::unique_ptr<Carrier>> {
              MR_ASSIGN_OR_RETURN(auto workers, WorkerGroup::Start({.cluster = cluster, .task = {"worker", rank}}));
              return NewLaneCarrier(std::move(workers));
            },
            options);
        ASSERT_TRUE(engine.ok()) << engine.status();
        EXPECT_EQ((*engine)->rank(), rank);
        EXPECT_EQ((*engine)->size(), ranks);
        body(**engine);
        if (shutdown) {
          EXPECT_EQ((*engine)->Shutdown(), absl::OkStatus());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(EngineTest, TheOrderOfSubmissionMayDiffer) {
  constexpr int kTensors = 40, kSteps = 20;
  OnAll(3,
        [](Engine& engine) {
          std::mt19937 random(static_cast<unsigned>(engine.rank()));
          std::vector<int> order(kTensors);
          for (int i = 0; i < kTensors; ++i) order[static_cast<size_t>(i)] = i;
          for (int step = 0; step < kSteps; ++step) {
            std::shuffle(order.begin(), order.end(), random);
            std::latch all(kTensors);
            for (const int i : order) {
              // Of different sizes, so that some are fused and some are not.
              const int64_t count = i % 7 == 0 ? 100'000 : i;
              const float value = static_cast<float>(i + step);
              engine.Submit(Sum(absl::StrCat("t", i), Floats(count, value)),
                            [&, count, value](StatusOr<Tensor> result) {
                              EXPECT_TRUE(result.ok()) << result.status();
                              if (result.ok()) {
                                EXPECT_EQ(result->num_elements(), count);
                                EXPECT_TRUE(std::all_of(result->flat<float>().begin(), result->flat<float>().end(),
                                                        [&](float sum) { return sum == 3 * value; }));
                              }
                              all.count_down();
                            });
            }
            all.wait();
          }
        },
        {.fusion_bytes = 300'000});
}

TEST_F(EngineTest, EveryKindGivesTheSameOnAllRanks) {
  OnAll(3, [](Engine& engine) {
    const auto rank = static_cast<float>(engine.rank());
    const Tensor own = Tensor::Of<float>({rank, 6});
    const auto mean = engine.SubmitAndWait({.name = "mean", .tensor = own, .reduction = "mean"});
    ASSERT_TRUE(mean.ok()) << mean.status();
    EXPECT_THAT(mean->flat<float>(), ElementsAre(1, 6));
    EXPECT_THAT(own.flat<float>(), ElementsAre(rank, 6)) << "what was submitted has changed";
    const auto most = engine.SubmitAndWait({.name = "max", .tensor = own, .reduction = "max"});
    EXPECT_THAT(most->flat<float>(), ElementsAre(2, 6));
    const auto rows = engine.SubmitAndWait(
        {.kind = Kind::kAllgather, .name = "rows", .tensor = Tensor(DType::kInt32, Shape({engine.rank(), 2}))});
    EXPECT_EQ(rows->shape(), Shape({3, 2}));
    const auto from_1 = engine.SubmitAndWait({.kind = Kind::kBroadcast, .name = "b", .tensor = own, .root = 1});
    EXPECT_THAT(from_1->flat<float>(), ElementsAre(1, 6));
  });
}

TEST_F(EngineTest, RanksThatDifferGetAnErrorAndGoOn) {
  OnAll(3, [](Engine& engine) {
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(engine.SubmitAndWait(Sum("x", Floats(4, 1))).ok());
      const auto differs = engine.SubmitAndWait(Sum("x", Floats(engine.rank() == 2 ? 5 : 4, 1)));
      EXPECT_EQ(differs.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(differs.status().message()),
                  AllOf(HasSubstr("rank 0 has allreduce 'x' (the sum of float[4])"), HasSubstr("rank 2 has"),
                        HasSubstr("float[5]")));
    }
  });
}

TEST_F(EngineTest, BadRequestsTroubleNobodyElse) {
  OnAll(2, [](Engine& engine) {
    const auto code = [&](NamedCollective operation) {
      return engine.SubmitAndWait(std::move(operation)).status().code();
    };
    if (engine.rank() == 0) {
      EXPECT_EQ(code(Sum("", Floats(1, 1))), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(code(Sum("text", Tensor::Scalar("text"))), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(code({.name = "x", .tensor = Floats(1, 1), .reduction = "median"}), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(code({.kind = Kind::kAllgather, .name = "x", .tensor = Tensor::Scalar<float>(1)}),
                absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(code({.kind = Kind::kBroadcast, .name = "x", .tensor = Floats(1, 1), .root = 2}),
                absl::StatusCode::kInvalidArgument);
    }
    // A name that is in flight.
    Notification first;
    const auto end = [&](const StatusOr<Tensor>& result) {
      EXPECT_TRUE(result.ok()) << result.status();
      first.Notify();
    };
    if (engine.rank() == 0) {
      engine.Submit(Sum("twice", Floats(1, 1)), end);
      EXPECT_EQ(code(Sum("twice", Floats(1, 1))), absl::StatusCode::kInvalidArgument);
    }
    EXPECT_TRUE(engine.SubmitAndWait(Sum("between", Floats(1, 1))).ok());
    if (engine.rank() == 1) engine.Submit(Sum("twice", Floats(1, 1)), end);
    first.Wait();
  });
}

TEST_F(EngineTest, ARankThatHasJoinedContributesZerosUntilAllHave) {
  // Rank r has 2 + 3r steps.
  OnAll(3, [](Engine& engine) {
    for (int again = 0; again < 2; ++again) {
      const int steps = 2 + 3 * engine.rank();
      for (int step = 0; step < steps; ++step) {
        const int ranks = step < 2 ? 3 : step < 5 ? 2 : 1;
        const auto sum = engine.SubmitAndWait(Sum("x", Floats(3, 1)));
        ASSERT_TRUE(sum.ok()) << sum.status();
        EXPECT_THAT(sum->flat<float>(), Each(static_cast<float>(ranks))) << step;
        // An average is that of all ranks, as in Horovod.
        NamedCollective average = Sum("y", Floats(3, 3));
        average.reduction = "mean";
        const auto mean = engine.SubmitAndWait(std::move(average));
        ASSERT_TRUE(mean.ok()) << mean.status();
        EXPECT_THAT(mean->flat<float>(), Each(static_cast<float>(ranks))) << step;
        const auto rows = engine.SubmitAndWait({.kind = Kind::kAllgather, .name = "rows", .tensor = Floats(2, 1)});
        ASSERT_TRUE(rows.ok()) << rows.status();
        EXPECT_EQ(rows->num_elements(), 2 * ranks);
      }
      const auto last = engine.Join();
      ASSERT_TRUE(last.ok()) << last.status();
      EXPECT_EQ(*last, 2);
    }
  });
}

TEST_F(EngineTest, WhatNeedsARankThatHasShutDownGetsAnError) {
  OnAll(2, [](Engine& engine) {
    if (engine.rank() == 1) return;
    const auto sum = engine.SubmitAndWait(Sum("x", Floats(3, 1)));
    EXPECT_EQ(sum.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(sum.status().message()), HasSubstr("rank 1 has called hvd::Shutdown"));
    EXPECT_EQ(engine.Join().status(), sum.status());
  });
}

TEST_F(EngineTest, ARankThatDiesIsNamed) {
  OnAll(
      3,
      [](Engine& engine) {
        auto sum = engine.SubmitAndWait(Sum("x", Floats(3, 1)));
        if (engine.rank() == 1) {
          EXPECT_TRUE(sum.ok()) << sum.status();
          return;
        }
        // It may be gone before the others have noticed the end of the first operation.
        if (sum.ok()) sum = engine.SubmitAndWait(Sum("y", Floats(3, 1)));
        EXPECT_EQ(sum.status().code(), absl::StatusCode::kUnavailable) << sum.status();
        EXPECT_THAT(std::string(sum.status().message()), HasSubstr("rank 1 (/job:worker"));
        EXPECT_EQ(engine.SubmitAndWait(Sum("z", Floats(3, 1))).status(), sum.status());
        EXPECT_EQ(engine.Shutdown(), sum.status());
      },
      {}, /*shutdown=*/false);
}

TEST_F(EngineTest, AfterShutdownNothingIsCarriedOut) {
  OnAll(1, [](Engine& engine) {
    EXPECT_TRUE(engine.SubmitAndWait(Sum("x", Floats(3, 1))).ok());
    EXPECT_EQ(engine.Join().value(), 0);
    EXPECT_EQ(engine.Shutdown(), absl::OkStatus());
    EXPECT_EQ(engine.SubmitAndWait(Sum("x", Floats(3, 1))).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(engine.Join().status().code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST_F(EngineTest, TheTraceHasARowForEachTensor) {
  const TempDirectory directory = TempDirectory::Make("hvd").value();
  const std::string path = absl::StrCat(directory.path(), "/trace.json");
  OnAll(2,
        [](Engine& engine) {
          std::latch two(2);
          for (const char* name : {"a", "b\"c"}) {
            engine.Submit(Sum(name, Floats(3, 1)), [&](const StatusOr<Tensor>& result) {
              EXPECT_TRUE(result.ok()) << result.status();
              two.count_down();
            });
          }
          two.wait();
        },
        {.timeline = path});
  const std::string text = ReadWholeFile(FileSystem::Posix(), path).value();
  EXPECT_THAT(text, AllOf(HasSubstr("\"name\": \"a\""), HasSubstr("b\\\"c"), HasSubstr("\"NEGOTIATE_ALLREDUCE\""),
                          HasSubstr("\"ALLREDUCE\""), HasSubstr("\"shape\": \"[3]\"")));
}

TEST_F(EngineTest, ATraceThatCannotBeWrittenIsAnErrorOfTheStart) {
  const auto engine = Engine::Start(
      []() -> StatusOr<std::unique_ptr<Carrier>> { return NewLaneCarrier(WorkerGroup::Start({}).value()); },
      {.timeline = "/nowhere/trace.json"});
  EXPECT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("/nowhere/trace.json"));
}

// ---- The ops

class NamedCollectiveOpsTest : public EngineTest {
 protected:
  // Sessions in this process, one for each rank.
  void InGraphs(int ranks, const std::function<void(Scope scope, Engine& engine, const std::string& group)>& body) {
    OnAll(ranks, [&](Engine& engine) {
      const std::string group = absl::StrCat("rank ", engine.rank());
      // The kernels use it as long as the engine is there.
      const std::shared_ptr<NamedCollectives> shared(&engine, [](NamedCollectives*) {});
      NamedCollectives::Install(group, shared);
      body(Scope::NewRoot(), engine, group);
    });
  }
};

TEST_F(NamedCollectiveOpsTest, TheirResultsAndGradientsAreThoseOfAllRanks) {
  InGraphs(2, [](const Scope& s, Engine& engine, const std::string& group) {
    const auto rank = static_cast<float>(engine.rank());
    const Output x = Op(s, "Identity", {Tensor::Of<float>({1 + rank, 10})});
    const Output mean = Op(s, "MillraceAllreduce", {x}, {{"reduction", std::string("mean")}, {"group", group}});
    const Output from_1 = Op(s, "MillraceBroadcast", {x}, {{"root_rank", int64_t{1}}, {"group", group}});
    const Output all = Op(s, "MillraceAllgather", {x}, {{"group", group}});
    const Output weight = Op(s, "Identity", {1 + rank});
    const auto of_mean = Gradients(s, {Op(s, "Mul", {mean, weight})}, {x});
    const auto of_broadcast = Gradients(s, {Op(s, "Mul", {from_1, weight})}, {x});
    ASSERT_EQ(s.status(), absl::OkStatus());
    ClientSession session = ClientSession::Create(s).value();
    const auto results = session.Run({}, {mean, from_1, all, of_mean[0].dense(), of_broadcast[0].dense()});
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_THAT((*results)[0].flat<float>(), ElementsAre(1.5, 10));
    EXPECT_THAT((*results)[1].flat<float>(), ElementsAre(2, 10));
    EXPECT_THAT((*results)[2].flat<float>(), ElementsAre(1, 10, 2, 10));
    EXPECT_THAT((*results)[3].flat<float>(), Each(1.5));
    EXPECT_THAT((*results)[4].flat<float>(), Each(engine.rank() == 1 ? 3 : 0));
  });
}

TEST_F(NamedCollectiveOpsTest, AStepThatIsCancelledNoLongerWaits) {
  InGraphs(2, [](const Scope& s, Engine& engine, const std::string& group) {
    const Output sum = Op(s.WithOpName("sum"), "MillraceAllreduce", {1.0f}, {{"group", group}});
    ClientSession session = ClientSession::Create(s).value();
    if (engine.rank() == 0) {
      Tensors results;
      const Status status =
          session.Run(RunOptions{.timeout = absl::Milliseconds(20)}, {}, {sum}, {}, &results, nullptr);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    }
    // The operation itself goes on: the others get their result.
    EXPECT_TRUE(engine.SubmitAndWait({.name = "turn", .tensor = Tensor::Scalar<float>(1)}).ok());
    if (engine.rank() == 1) {
      const auto results = session.Run({}, {sum});
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_EQ((*results)[0].scalar<float>(), 2);
    }
  });
}

TEST(NamedCollectiveOps, WithoutInitTheyFail) {
  const Scope s = Scope::NewRoot();
  const Output sum = Op(s, "MillraceAllreduce", {1.0f});
  ClientSession session = ClientSession::Create(s).value();
  const auto results = session.Run({}, {sum});
  EXPECT_EQ(results.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(results.status().message()), HasSubstr("hvd::Init"));
}

}  // namespace
}  // namespace millrace::hvd
