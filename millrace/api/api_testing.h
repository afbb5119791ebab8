// Runs small graphs in tests.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "millrace/millrace.h"

namespace millrace {

// Initialises the scope's variables and returns the fetches; empty after a test failure.
inline Tensors RunOnce(const Scope& scope, const std::vector<Output>& fetches, const ClientSession::Feeds& feeds = {}) {
  const bool has_variables = !GlobalVariables(scope).empty();
  const Operation init = has_variables ? GlobalVariablesInitializer(scope) : Operation();
  StatusOr<ClientSession> session = ClientSession::Create(scope);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return {};
  if (has_variables) {
    EXPECT_TRUE(session->Run(init).ok());
  }
  StatusOr<Tensors> result = session->Run(feeds, fetches);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : Tensors();
}

inline std::vector<float> Floats(const Tensor& tensor) {
  const auto flat = tensor.flat<float>();
  return std::vector<float>(flat.begin(), flat.end());
}

}  // namespace millrace
