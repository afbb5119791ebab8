#include "millrace/session/session.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/graph_def.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/session/chrome_trace.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// A graph under construction and a session over it.
class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : b_(&graph_) {}

  Endpoint Placeholder(const std::string& name, PartialShape shape = {}, DType dtype = DType::kFloat) {
    return b_.Op("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, name);
  }
  std::unique_ptr<Session> Open(SessionOptions options = {}) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    auto session = Session::Create(options);
    EXPECT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE((*session)->Extend(graph_).ok());
    return *std::move(session);
  }
  // i = 0, x = start; while (i < n) { i += 1; x = step(x) }. Gives x.
  Endpoint Loop(int n, Endpoint start, const std::function<Endpoint(Endpoint)>& step);

  Graph graph_;
  GraphBuilder b_;
};

Endpoint SessionTest::Loop(int n, Endpoint start, const std::function<Endpoint(Endpoint)>& step) {
  const auto enter = [&](Endpoint e, bool constant) {
    return b_.Op("Enter", {e}, {{"frame_name", "loop"}, {"is_constant", constant}});
  };
  Endpoint i0 = enter(b_.Scalar<int32_t>(0), false), x0 = enter(start, false);
  Endpoint limit = enter(b_.Scalar<int32_t>(n), true), one = enter(b_.Scalar<int32_t>(1), true);
  Node* i_merge = b_.AddNode("Merge", {i0, i0});
  Node* x_merge = b_.AddNode("Merge", {x0, x0});
  Endpoint go = b_.Op("LoopCond", {b_.Op("Less", {i_merge->output(0), limit})});
  Node* i_switch = b_.AddNode("Switch", {i_merge->output(0), go});
  Node* x_switch = b_.AddNode("Switch", {x_merge->output(0), go});
  Endpoint i_next = b_.Op("NextIteration", {b_.Add(b_.Op("Identity", {i_switch->output(1)}), one)});
  Endpoint x_next = b_.Op("NextIteration", {step(b_.Op("Identity", {x_switch->output(1)}))});
  graph_.SetInput(i_merge, 1, i_next);
  graph_.SetInput(x_merge, 1, x_next);
  return b_.Op("Exit", {x_switch->output(0)}, {}, "result");
}

float AsFloat(const StatusOr<std::vector<Tensor>>& results) {
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? (*results)[0].scalar<float>() : -1;
}

TEST_F(SessionTest, RunsWhatIsFetchedWithFeeds) {
  Endpoint x = Placeholder("x");
  b_.Op("Mul", {b_.Op("AddV2", {x, b_.Scalar(2.0f)}), x}, {}, "y");
  auto session = Open();
  EXPECT_EQ(AsFloat(session->Run({{"x:0", Tensor::Scalar(3.0f)}}, {"y:0"})), 15);
  EXPECT_EQ(AsFloat(session->Run({{"x", Tensor::Scalar(4.0f)}}, {"y"})), 24);
}

TEST_F(SessionTest, AnyTensorMayBeFed) {
  Endpoint c = b_.Op("Const", {}, {{"dtype", DType::kFloat}, {"value", Tensor::Scalar(1.0f)}}, "c");
  Endpoint d = b_.Op("AddV2", {c, c}, {}, "d");
  b_.Op("Mul", {d, d}, {}, "y");
  auto session = Open();
  EXPECT_EQ(AsFloat(session->Run({"y"})), 4);
  EXPECT_EQ(AsFloat(session->Run({{"d:0", Tensor::Scalar(5.0f)}}, {"y"})), 25);
  EXPECT_EQ(AsFloat(session->Run({{"c", Tensor::Scalar(3.0f)}}, {"y"})), 36);
  // A value of another shape than the node would make.
  auto wide = session->Run({{"d:0", Tensor::Of<float>({1, 2, 3})}}, {"y"});
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ((*wide)[0].shape(), Shape({3}));
}

TEST_F(SessionTest, MistakesNameWhatIsWrong) {
  Endpoint x = Placeholder("x", PartialShape({PartialShape::kUnknown, 2}));
  b_.Op("Neg", {x}, {}, "y");
  b_.AddNode("NoOp", {}, {}, "nothing");
  auto session = Open();
  const auto expect = [&](StatusOr<std::vector<Tensor>> result, absl::StatusCode code, const std::string& text) {
    EXPECT_EQ(result.status().code(), code) << result.status();
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(text));
  };
  const Tensor good(DType::kFloat, Shape({1, 2}));
  expect(session->Run({"nope:0"}), absl::StatusCode::kNotFound, "nope");
  expect(session->Run({"y:3"}), absl::StatusCode::kInvalidArgument, "y:3");
  expect(session->Run({{"z", good}}, {"y"}), absl::StatusCode::kNotFound, "z");
  expect(session->Run({}, {}, {"lost"}), absl::StatusCode::kNotFound, "lost");
  expect(session->Run({}, {}), absl::StatusCode::kInvalidArgument, "nothing to do");
  expect(session->Run({"nothing"}), absl::StatusCode::kInvalidArgument, "no outputs");
  expect(session->Run({"y"}), absl::StatusCode::kInvalidArgument, "x");
  expect(session->Run({{"x", Tensor::Of<int32_t>({1})}}, {"y"}), absl::StatusCode::kInternal, "int32");
  expect(session->Run({{"x", Tensor::Of<float>({1})}}, {"y"}), absl::StatusCode::kInvalidArgument, "[?,2]");
  expect(session->Run({{"x", good}}, {"x"}), absl::StatusCode::kInvalidArgument, "both fed and fetched");
  expect(session->Run({{"x", good}, {"x:0", good}}, {"y"}), absl::StatusCode::kInvalidArgument, "twice");
}

TEST_F(SessionTest, AFailingKernelNamesNodeOpAndDevice) {
  Endpoint x = Placeholder("x"), y = Placeholder("y");
  b_.Op("MatMul", {x, y}, {}, "layer1/product");
  auto session = Open();
  auto result = session->Run({{"x", Tensor(DType::kFloat, Shape({2, 3}))}, {"y", Tensor(DType::kFloat, Shape({2, 3}))}},
                             {"layer1/product"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("{{node layer1/product}}"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("MatMul"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("device:CPU:0"));
}

TEST_F(SessionTest, VariablesOutliveStepsAndMustBeInitialised) {
  Endpoint v = b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", Shape()}}, "v");
  b_.Op("Assign", {v, b_.Scalar(5.0f)}, {}, "init");
  b_.Op("AssignAdd", {v, b_.Scalar(1.5f)}, {}, "more");
  auto resources = std::make_shared<ResourceManager>();
  auto session = Open({.resources = resources});
  auto early = session->Run({"v"});
  EXPECT_EQ(early.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(early.status().message()), HasSubstr("v"));
  ASSERT_TRUE(session->RunTargets({"init"}).ok());
  EXPECT_EQ(AsFloat(session->Run({"more"})), 6.5);
  EXPECT_EQ(AsFloat(session->Run({"v:0"})), 6.5);
  auto second = Open({.resources = resources});
  EXPECT_EQ(AsFloat(second->Run({"v:0"})), 6.5);
}

TEST_F(SessionTest, ExtendAddsNodesAndKeepsTheGraphOnError) {
  auto session = Open();
  pb::GraphDef def;
  pb::NodeDef* node = def.add_node();
  node->set_name("n");
  node->set_op("NoOp");
  ASSERT_TRUE(session->Extend(def).ok());
  EXPECT_EQ(session->Extend(def).code(), absl::StatusCode::kInvalidArgument);  // duplicate name
  node->set_name("m");
  def.add_node()->set_name("o");
  def.mutable_node(1)->set_op("NoSuchOp");
  EXPECT_EQ(session->Extend(def).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(session->RunTargets({"n"}).ok());
  EXPECT_EQ(session->RunTargets({"m"}).code(), absl::StatusCode::kNotFound);
}

TEST_F(SessionTest, WhatIsOrderedAfterAnUpdateReadsTheNewValue) {
  Endpoint v = b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", Shape()}}, "v");
  b_.Op("Assign", {v, b_.Scalar(5.0f)}, {}, "init");
  Endpoint read = b_.Op("Identity", {v}, {}, "read");
  Endpoint more = b_.Op("AssignAdd", {v, b_.Scalar(1.0f)}, {}, "more");
  b_.Op("Neg", {read}, {}, "before");
  b_.control_inputs = {more.node};
  b_.Op("Neg", {read}, {}, "after");
  auto session = Open();
  ASSERT_TRUE(session->RunTargets({"init"}).ok());
  auto results = session->Run({"after"});
  EXPECT_EQ(AsFloat(results), -6);
}

TEST_F(SessionTest, RandomOpsContinueAcrossSignatures) {
  Endpoint r = b_.Op("RandomUniform", {b_.Ints({4})}, {{"dtype", DType::kFloat}, {"seed", 7}, {"seed2", 9}}, "r");
  b_.Op("Neg", {r}, {}, "n");
  auto one = Open();
  auto first = one->Run({"r"});
  auto second = one->Run({"r"});
  auto two = Open();
  ASSERT_TRUE(two->Run({"r"}).ok());
  auto through_n = two->Run({"n"});
  ASSERT_TRUE(first.ok() && second.ok() && through_n.ok());
  EXPECT_NE((*first)[0].data<float>()[0], (*second)[0].data<float>()[0]);
  EXPECT_EQ((*second)[0].data<float>()[0], -(*through_n)[0].data<float>()[0]);
}

TEST_F(SessionTest, ConditionalsRunOneBranchOnly) {
  Endpoint x = Placeholder("x"), p = Placeholder("p", {}, DType::kBool);
  Node* s = b_.AddNode("Switch", {x, p});
  Endpoint negated = b_.Op("Neg", {s->output(0)}, {}, "negated");
  Endpoint squared = b_.Op("Square", {s->output(1)}, {}, "squared");
  b_.Op("Merge", std::vector<Endpoint>{negated, squared}, {}, "y");
  auto session = Open();
  const auto run = [&](bool predicate, const char* fetch) {
    return session->Run({{"x", Tensor::Scalar(3.0f)}, {"p", Tensor::Scalar(predicate)}}, {fetch});
  };
  EXPECT_EQ(AsFloat(run(true, "y:0")), 9);
  EXPECT_EQ(AsFloat(run(false, "y:0")), -3);
  auto dead = run(true, "negated");
  EXPECT_EQ(dead.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(dead.status().message()), HasSubstr("negated"));
}

TEST_F(SessionTest, LoopsRunUntilTheirConditionFails) {
  Loop(10, Placeholder("x"), [&](Endpoint x) { return b_.Add(x, x); });
  auto session = Open();
  EXPECT_EQ(AsFloat(session->Run({{"x", Tensor::Scalar(1.5f)}}, {"result"})), 1536);
}

TEST_F(SessionTest, ALoopOfNoIterationsGivesItsStart) {
  Loop(0, Placeholder("x"), [&](Endpoint x) { return b_.Neg(x); });
  auto session = Open();
  EXPECT_EQ(AsFloat(session->Run({{"x", Tensor::Scalar(7.0f)}}, {"result"})), 7);
}

TEST_F(SessionTest, ALoopInAnUntakenBranchIsDead) {
  Endpoint x = Placeholder("x"), p = Placeholder("p", {}, DType::kBool);
  Node* s = b_.AddNode("Switch", {x, p});
  Endpoint looped = Loop(3, s->output(1), [&](Endpoint v) { return b_.Add(v, v); });
  Endpoint other = b_.Op("Identity", {s->output(0)});
  b_.Op("Merge", std::vector<Endpoint>{other, looped}, {}, "y");
  auto session = Open();
  const auto run = [&](bool predicate) {
    return session->Run({{"x", Tensor::Scalar(3.0f)}, {"p", Tensor::Scalar(predicate)}}, {"y"});
  };
  EXPECT_EQ(AsFloat(run(false)), 3);
  EXPECT_EQ(AsFloat(run(true)), 24);
}

TEST_F(SessionTest, ConcurrentRunsOfOnePlanDoNotMix) {
  Loop(20, Placeholder("x"), [&](Endpoint x) { return b_.Add(x, x); });
  Endpoint z = Placeholder("z");
  Endpoint chain = z;
  for (int i = 0; i < 50; ++i) chain = b_.Add(chain, z);
  b_.Op("Identity", {chain}, {}, "chained");
  auto session = Open({.inter_op_threads = 2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const float x = static_cast<float>(t * 100 + i);
        EXPECT_EQ(AsFloat(session->Run({{"x", Tensor::Scalar(x)}}, {"result"})), x * 1048576);
        EXPECT_EQ(AsFloat(session->Run({{"z", Tensor::Scalar(x)}}, {"chained"})), x * 51);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SessionTest, AnErrorInALoopEndsTheStepAndLaterOnesWork) {
  Endpoint x = Placeholder("x");
  Loop(1000, x, [&](Endpoint v) { return b_.Op("CheckNumerics", {b_.Mul(v, v)}, {{"message", "blew up"}}, "check"); });
  auto session = Open();
  auto result = session->Run({{"x", Tensor::Scalar(2.0f)}}, {"result"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("check"));
  EXPECT_EQ(AsFloat(session->Run({{"x", Tensor::Scalar(1.0f)}}, {"result"})), 1);
}

TEST_F(SessionTest, ATimeOutEndsAnEndlessLoop) {
  Loop(2000000000, Placeholder("x"), [&](Endpoint x) { return b_.Neg(x); });
  auto session = Open();
  std::vector<Tensor> results;
  Status status = session->Run({.timeout = absl::Milliseconds(50)}, {{"x", Tensor::Scalar(2.0f)}}, {"result"}, {},
                               &results, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST_F(SessionTest, CancellationEndsAnEndlessLoop) {
  Loop(2000000000, Placeholder("x"), [&](Endpoint x) { return b_.Neg(x); });
  auto session = Open();
  CancellationManager cancellation;
  Status status;
  std::thread runner([&] {
    std::vector<Tensor> results;
    status =
        session->Run({.cancellation = &cancellation}, {{"x", Tensor::Scalar(2.0f)}}, {"result"}, {}, &results, nullptr);
  });
  cancellation.StartCancel();
  runner.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

TEST_F(SessionTest, CloseCancelsRunningStepsAndRefusesNewOnes) {
  Loop(2000000000, Placeholder("x"), [&](Endpoint x) { return b_.Neg(x); });
  auto session = Open();
  Status status;
  std::thread runner([&] { status = session->Run({{"x", Tensor::Scalar(2.0f)}}, {"result"}).status(); });
  ASSERT_TRUE(session->Close().ok());
  runner.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(session->Run({{"x", Tensor::Scalar(2.0f)}}, {"result"}).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(SessionTest, CallablesTakeFeedsByPosition) {
  Endpoint x = Placeholder("x"), y = Placeholder("y");
  b_.Op("Sub", {x, y}, {}, "d");
  auto session = Open();
  auto callable = session->MakeCallable({.feeds = {"y", "x"}, .fetches = {"d"}});
  ASSERT_TRUE(callable.ok()) << callable.status();
  std::vector<Tensor> results;
  ASSERT_TRUE((*callable)->Run({Tensor::Scalar(1.0f), Tensor::Scalar(5.0f)}, &results).ok());
  EXPECT_EQ(results[0].scalar<float>(), 4);
  EXPECT_EQ((*callable)->Run({Tensor::Scalar(1.0f)}, &results).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, PartialRunsFeedAndFetchInSeveralCalls) {
  Endpoint a = Placeholder("a"), c = Placeholder("c");
  Endpoint r1 = b_.Op("AddV2", {a, b_.Scalar(1.0f)}, {}, "r1");
  b_.Op("Mul", {r1, c}, {}, "r2");
  auto session = Open();
  auto handle =
      session->PartialRunSetup(std::vector<std::string>{"a:0", "c:0"}, std::vector<std::string>{"r1:0", "r2:0"}, {});
  ASSERT_TRUE(handle.ok()) << handle.status();
  std::vector<Tensor> results;
  // r2 needs c, which is not there yet.
  Status early = session->PartialRun(*handle, std::vector<Feed>{{"a:0", Tensor::Scalar(1.0f)}},
                                     std::vector<std::string>{"r2:0"}, &results);
  EXPECT_EQ(early.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(early.message()), HasSubstr("c:0"));
  ASSERT_TRUE(session
                  ->PartialRun(*handle, std::vector<Feed>{{"a:0", Tensor::Scalar(1.0f)}},
                               std::vector<std::string>{"r1:0"}, &results)
                  .ok());
  EXPECT_EQ(results[0].scalar<float>(), 2);
  ASSERT_TRUE(session
                  ->PartialRun(*handle, std::vector<Feed>{{"c:0", Tensor::Scalar(10.0f)}},
                               std::vector<std::string>{"r2:0"}, &results)
                  .ok());
  EXPECT_EQ(results[0].scalar<float>(), 20);
  EXPECT_EQ(session->PartialRun(*handle, {}, {}, &results).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, PartialRunsOfDifferentTensorsHaveTheirOwnEdges) {
  b_.Op("Neg", {Placeholder("a")}, {}, "minus_a");
  b_.Op("Neg", {Placeholder("b")}, {}, "minus_b");
  auto session = Open();
  for (const std::string name : {"a", "b"}) {
    // Names without an output mean output 0, in the set-up as in the call.
    auto handle =
        session->PartialRunSetup(std::vector<std::string>{name}, std::vector<std::string>{"minus_" + name}, {});
    ASSERT_TRUE(handle.ok()) << handle.status();
    std::vector<Tensor> results;
    const Status status = session->PartialRun(*handle, std::vector<Feed>{{name + ":0", Tensor::Scalar(3.0f)}},
                                              std::vector<std::string>{"minus_" + name + ":0"}, &results);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(results[0].scalar<float>(), -3);
  }
}

TEST_F(SessionTest, ClosingEndsAnUnfinishedPartialRun) {
  Endpoint a = Placeholder("a");
  b_.Op("Neg", {a}, {}, "r");
  auto session = Open();
  auto handle = session->PartialRunSetup(std::vector<std::string>{"a:0"}, std::vector<std::string>{"r:0"}, {});
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(SessionTest, AConstantThatIsFetchedIsInTheTrace) {
  b_.Const(Tensor::Scalar<float>(42), "answer");
  auto session = Open();
  RunMetadata metadata;
  std::vector<Tensor> results;
  ASSERT_TRUE(session->Run({.trace = true}, {}, {"answer"}, {}, &results, &metadata).ok());
  ASSERT_EQ(metadata.step_stats().dev_stats_size(), 1);
  ASSERT_EQ(metadata.step_stats().dev_stats(0).node_stats_size(), 1);
  EXPECT_EQ(metadata.step_stats().dev_stats(0).node_stats(0).node_name(), "answer");
}

TEST_F(SessionTest, TracesHoldEveryNodeAndBecomeAChromeTrace) {
  Endpoint x = Placeholder("x");
  b_.Op("Square", {b_.Op("Neg", {x}, {}, "minus")}, {}, "y");
  auto session = Open();
  RunMetadata metadata;
  std::vector<Tensor> results;
  ASSERT_TRUE(session
                  ->Run({.trace = true, .output_partition_graphs = true}, {{"x", Tensor::Of<float>({1, 2})}}, {"y"}, {},
                        &results, &metadata)
                  .ok());
  ASSERT_EQ(metadata.step_stats().dev_stats_size(), 1);
  EXPECT_THAT(metadata.step_stats().dev_stats(0).device(), HasSubstr("CPU:0"));
  ASSERT_EQ(metadata.step_stats().dev_stats(0).node_stats_size(), 2);
  EXPECT_EQ(metadata.step_stats().dev_stats(0).node_stats(0).node_name(), "minus");
  EXPECT_EQ(metadata.partition_graphs_size(), 1);
  const std::string trace = ChromeTrace(metadata.step_stats());
  EXPECT_THAT(trace, HasSubstr("\"Neg\""));
  EXPECT_THAT(trace, HasSubstr("minus"));
}

TEST_F(SessionTest, EdgesBetweenDevicesGetACopyNode) {
  Endpoint x = Placeholder("x");
  b_.device = "/device:CPU:0";
  Endpoint n = b_.Op("Neg", {x}, {}, "n");
  b_.device = "/cpu:1";
  b_.Op("Square", {n}, {}, "y");
  auto session = Open({.cpu_devices = 2});
  RunMetadata metadata;
  std::vector<Tensor> results;
  ASSERT_TRUE(session->Run({.trace = true}, {{"x", Tensor::Scalar(3.0f)}}, {"y"}, {}, &results, &metadata).ok());
  EXPECT_EQ(results[0].scalar<float>(), 9);
  EXPECT_EQ(metadata.step_stats().dev_stats_size(), 2);
  EXPECT_THAT(metadata.step_stats().DebugString(), HasSubstr("_CopyToDevice"));
}

TEST_F(SessionTest, AnImpossibleDeviceListsThoseThatExist) {
  b_.device = "/job:ps/task:3";
  b_.Op("Neg", {b_.Scalar(1.0f)}, {}, "y");
  auto session = Open();
  auto result = session->Run({"y"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("/job:ps/task:3"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("/job:localhost/replica:0/task:0/device:CPU:0"));
  // Soft placement is about kinds of devices, not about tasks.
  auto soft = Open({.allow_soft_placement = true});
  EXPECT_EQ(soft->Run({"y"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, SoftPlacementTakesAnotherKindOfDevice) {
  b_.device = "/device:TPU:7";
  b_.Op("Neg", {b_.Scalar(1.0f)}, {}, "y");
  EXPECT_EQ(Open()->Run({"y"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AsFloat(Open({.allow_soft_placement = true})->Run({"y"})), -1);
}

TEST(SessionCreateTest, AnUnknownTargetIsRefused) {
  auto session = Session::Create({.target = "carrier-pigeon://loft:1"});
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(session.status().message()), HasSubstr("carrier-pigeon"));
}

}  // namespace
}  // namespace millrace
