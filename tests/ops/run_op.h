// Runs one op on given tensors, with a given number of threads: for tests of kernels.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {

// The op's outputs, or the error. Shape inference does not run before the kernel.
inline StatusOr<std::vector<Tensor>> RunOp(const std::string& op, const std::vector<Tensor>& inputs,
                                           AttrList attrs = {}, int threads = 2) {
  Graph graph;
  GraphBuilder b(&graph);
  std::vector<Endpoint> endpoints;
  std::vector<Feed> feeds;
  for (const Tensor& input : inputs) {
    endpoints.push_back(b.Op("Placeholder", {}, {{"dtype", input.dtype()}}));
    if (!b.ok()) return b.status();
    feeds.emplace_back(endpoints.back().name(), input);
  }
  Node* node = b.AddNode(op, endpoints, std::move(attrs));
  MR_RETURN_IF_ERROR(b.status());
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create({.intra_op_threads = threads}));
  MR_RETURN_IF_ERROR(session->Extend(graph));
  std::vector<std::string> fetches;
  for (int i = 0; i < node->num_outputs(); ++i) fetches.push_back(node->output(i).name());
  return session->Run(feeds, fetches);
}

// Pseudo-random numbers between -1 and 1 that are the same on every machine.
inline Tensor Noise(Shape shape, uint32_t seed = 1) {
  Tensor t(DType::kFloat, std::move(shape));
  uint32_t state = seed * 2654435761u + 12345u;
  for (float& v : t.flat<float>()) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  return t;
}

inline void ExpectNear(const Tensor& got, const Tensor& want, float tolerance) {
  ASSERT_EQ(got.shape(), want.shape()) << got.shape().ToString() << " " << want.shape().ToString();
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const float a = got.data<float>()[i], b = want.data<float>()[i];
    ASSERT_LE(std::abs(a - b), tolerance * (1.0f + std::abs(b))) << "element " << i;
  }
}

inline bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw_data(), b.raw_data(), a.TotalBytes()) == 0;
}

// Runs with 1, 2 and 8 threads, expects identical bytes, and returns them.
inline std::vector<Tensor> RunOnAllThreads(const std::string& op, const std::vector<Tensor>& inputs,
                                           const AttrList& attrs = {}) {
  std::vector<Tensor> first;
  for (int threads : {1, 2, 8}) {
    auto outputs = RunOp(op, inputs, attrs, threads);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return {};
    if (first.empty()) {
      first = *std::move(outputs);
      continue;
    }
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(SameBytes(first[i], (*outputs)[i])) << op << " output " << i << " with " << threads << " threads";
    }
  }
  return first;
}

}  // namespace millrace
