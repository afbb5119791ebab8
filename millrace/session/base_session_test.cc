#include "millrace/session/base_session.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Notes what a kind of session is asked for.
class NotingSession : public BaseSession {
 public:
  NotingSession() : BaseSession(SessionOptions{.operation_timeout = absl::Seconds(7)}) {}
  using BaseSession::TimeoutOf;

  Status Add(pb::GraphDef fresh) override {
    added.push_back(std::move(fresh));
    if (on_add != nullptr) on_add();
    return add_result;
  }
  Status RunStep(CallableSpec spec, std::vector<Tensor> feeds, const RunOptions&, std::vector<Tensor>*,
                 RunMetadata*) override {
    asked = std::move(spec);
    return absl::OkStatus();
  }
  StatusOr<std::unique_ptr<Callable>> Compile(CallableSpec spec) override {
    asked = std::move(spec);
    return Unimplemented("no callables");
  }
  StatusOr<std::string> SetUpPartial(CallableSpec spec) override {
    asked = std::move(spec);
    return std::string("0");
  }
  Status RunPartial(const std::string&, std::vector<Feed> feeds, std::vector<std::string> fetches,
                    std::vector<Tensor>*) override {
    asked = {.fetches = std::move(fetches)};
    for (const Feed& feed : feeds) asked.feeds.push_back(feed.first);
    return absl::OkStatus();
  }
  Status Close() override { return absl::OkStatus(); }

  std::vector<pb::GraphDef> added;
  Status add_result;
  std::function<void()> on_add;
  CallableSpec asked;
};

void AddNode(pb::GraphDef* def, const std::string& name) {
  pb::NodeDef* node = def->add_node();
  node->set_name(name);
  node->set_op("NoOp");
}

void AddFunction(pb::GraphDef* def, const std::string& name) {
  def->mutable_library()->add_function()->mutable_signature()->set_name(name);
}

std::vector<std::string> NodesOf(const pb::GraphDef& def) {
  std::vector<std::string> names;
  for (const pb::NodeDef& node : def.node()) names.push_back(node.name());
  return names;
}

std::vector<std::string> FunctionsOf(const pb::GraphDef& def) {
  std::vector<std::string> names;
  for (const pb::FunctionDef& function : def.library().function()) names.push_back(function.signature().name());
  return names;
}

TEST(BaseSessionTest, ExtendSendsOnlyTheNodesAndFunctionsThatAreNew) {
  NotingSession session;
  Graph graph;
  pb::GraphDef first;
  AddNode(&first, "a");
  AddFunction(&first, "f");
  ASSERT_TRUE(ImportGraphDef(std::move(first), &graph).ok());
  ASSERT_TRUE(session.Extend(graph).ok());
  ASSERT_TRUE(session.Extend(graph).ok());
  ASSERT_EQ(session.added.size(), 1u) << "nothing was new the second time";
  pb::GraphDef second;
  AddNode(&second, "b");
  AddFunction(&second, "g");
  ASSERT_TRUE(ImportGraphDef(std::move(second), &graph).ok());
  ASSERT_TRUE(session.Extend(graph).ok());
  ASSERT_EQ(session.added.size(), 2u);
  EXPECT_THAT(NodesOf(session.added[0]), ElementsAre("a"));
  EXPECT_THAT(FunctionsOf(session.added[0]), ElementsAre("f"));
  EXPECT_THAT(NodesOf(session.added[1]), ElementsAre("b"));
  EXPECT_THAT(FunctionsOf(session.added[1]), ElementsAre("g"));
}

TEST(BaseSessionTest, WhatCouldNotBeAddedIsNewTheNextTime) {
  NotingSession session;
  Graph graph;
  pb::GraphDef def;
  AddNode(&def, "a");
  ASSERT_TRUE(ImportGraphDef(std::move(def), &graph).ok());
  session.add_result = Unavailable("nobody there");
  EXPECT_EQ(session.Extend(graph).code(), absl::StatusCode::kUnavailable);
  session.add_result = absl::OkStatus();
  ASSERT_TRUE(session.Extend(graph).ok());
  ASSERT_EQ(session.added.size(), 2u);
  EXPECT_THAT(NodesOf(session.added[1]), ElementsAre("a"));
}

TEST(BaseSessionTest, RunsGoOnWhileTheSessionIsExtendedAndExtensionsTakeTurns) {
  NotingSession session;
  Notification adding, go_on;
  bool first = true;
  session.on_add = [&] {
    if (!std::exchange(first, false)) return;
    adding.Notify();
    go_on.Wait();
  };
  const auto extend = [&](const std::string& name) {
    pb::GraphDef def;
    AddNode(&def, name);
    EXPECT_TRUE(session.Extend(std::move(def)).ok());
  };
  std::thread slow([&] { extend("slow"); });
  adding.Wait();
  std::thread next([&] { extend("next"); });
  EXPECT_TRUE(session.Run({"y"}).ok());
  EXPECT_EQ(session.added.size(), 1u);
  go_on.Notify();
  slow.join();
  next.join();
  ASSERT_EQ(session.added.size(), 2u);
  EXPECT_THAT(NodesOf(session.added[1]), ElementsAre("next"));
}

TEST(BaseSessionTest, TensorsGoByWholeNames) {
  NotingSession session;
  const Tensor value = Tensor::Scalar(1.0f);
  ASSERT_TRUE(session.Run({{"x", value}, {"y:1", value}}, {"z"}, {"train"}).ok());
  EXPECT_THAT(session.asked.feeds, ElementsAre("x:0", "y:1"));
  EXPECT_THAT(session.asked.fetches, ElementsAre("z:0"));
  EXPECT_THAT(session.asked.targets, ElementsAre("train"));
  EXPECT_FALSE(session.MakeCallable({.feeds = {"x"}, .fetches = {"z"}}).ok());
  EXPECT_THAT(session.asked.feeds, ElementsAre("x:0"));
  const std::vector<std::string> feeds = {"a"}, fetches = {"b", "c:2"};
  ASSERT_TRUE(session.PartialRunSetup(feeds, fetches, {}).ok());
  EXPECT_THAT(session.asked.fetches, ElementsAre("b:0", "c:2"));
  std::vector<Tensor> results;
  ASSERT_TRUE(session.PartialRun("0", std::vector<Feed>{{"a", value}}, fetches, &results).ok());
  EXPECT_THAT(session.asked.feeds, ElementsAre("a:0"));
  EXPECT_THAT(session.asked.targets, IsEmpty());
}

TEST(BaseSessionTest, ARunWithoutATimeOutHasTheSessions) {
  const NotingSession session;
  EXPECT_EQ(session.TimeoutOf({}), absl::Seconds(7));
  EXPECT_EQ(session.TimeoutOf({.timeout = absl::Seconds(1)}), absl::Seconds(1));
}

}  // namespace
}  // namespace millrace
