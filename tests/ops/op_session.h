// For tests of ops: a graph under construction and a session that runs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {

class OpSessionTest : public ::testing::Test {
 protected:
  OpSessionTest() : b_(&graph_) {}

  // Runs in one session all through the test; nodes may be added between runs.
  StatusOr<std::vector<Tensor>> Fetch(const std::vector<Endpoint>& fetches, const std::vector<Node*>& targets = {}) {
    MR_RETURN_IF_ERROR(b_.status());
    if (session_ == nullptr) {
      MR_ASSIGN_OR_RETURN(session_, Session::Create({}));
    }
    MR_RETURN_IF_ERROR(session_->Extend(graph_));
    std::vector<std::string> names, target_names;
    for (const Endpoint& e : fetches) names.push_back(e.name());
    for (const Node* node : targets) target_names.push_back(node->name());
    return session_->Run({}, names, target_names);
  }
  Status Run(Node* target) { return Fetch({}, {target}).status(); }
  // The elements of one fetch; the test fails if there is none.
  template <typename T>
  std::vector<T> Values(Endpoint fetch) {
    const auto results = Fetch({fetch});
    if (!results.ok()) {
      ADD_FAILURE() << results.status();
      return {};
    }
    const absl::Span<const T> flat = (*results)[0].flat<T>();
    return std::vector<T>(flat.begin(), flat.end());
  }

  Graph graph_;
  GraphBuilder b_;
  std::unique_ptr<Session> session_;
};

}  // namespace millrace
