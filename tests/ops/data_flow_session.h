// For tests of ops that wait: a session whose waits can be inspected, and steps that run concurrently with the test.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/session/session.h"

namespace millrace {

class DataFlowTest : public ::testing::Test {
 protected:
  DataFlowTest() : b_(&graph_), waits_(std::make_shared<WaitRegistry>()) {}

  // Call when the graph is complete.
  void Open(int inter_op_threads = 2) {
    ASSERT_TRUE(b_.ok()) << b_.status();
    auto session = Session::Create({.inter_op_threads = inter_op_threads, .waits = waits_});
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    ASSERT_TRUE(session_->Extend(graph_).ok());
  }

  Status Do(const Node* target, const RunOptions& options = {}) {
    std::vector<Tensor> none;
    return session_->Run(options, {}, {}, {target->name()}, &none, nullptr);
  }
  StatusOr<std::vector<Tensor>> Get(const Node* node, const RunOptions& options = {},
                                    const std::vector<Feed>& feeds = {}) {
    std::vector<std::string> fetches;
    for (int i = 0; i < node->num_outputs(); ++i) fetches.push_back(Endpoint{const_cast<Node*>(node), i}.name());
    std::vector<Tensor> results;
    MR_RETURN_IF_ERROR(session_->Run(options, feeds, fetches, {}, &results, nullptr));
    return results;
  }
  template <typename T>
  std::vector<T> Values(const Node* node, int output = 0) {
    const auto results = Get(node);
    if (!results.ok()) {
      ADD_FAILURE() << results.status();
      return {};
    }
    const absl::Span<const T> flat = (*results)[output].flat<T>();
    return {flat.begin(), flat.end()};
  }

  // A step on a thread of its own. Ask for its result once.
  class Background {
   public:
    template <typename Fn>
    explicit Background(Fn fn) : thread_([this, fn] { result_ = fn(); }) {}
    ~Background() {
      if (thread_.joinable()) thread_.join();
    }
    Status Result() {
      thread_.join();
      return result_;
    }

   private:
    Status result_;
    std::thread thread_;
  };

  // Returns once that many ops wait.
  void AwaitWaits(size_t n) {
    while (waits_->List().size() != n) std::this_thread::yield();
  }

  Node* Handle(const char* op, AttrList attrs) { return b_.AddNode(op, {}, std::move(attrs)); }
  Endpoint Int(int32_t v) { return b_.Scalar<int32_t>(v); }

  Graph graph_;
  GraphBuilder b_;
  std::shared_ptr<WaitRegistry> waits_;
  std::unique_ptr<Session> session_;
};

inline void ExpectError(const Status& status, absl::StatusCode code, const std::string& fragment) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(fragment));
}

}  // namespace millrace
