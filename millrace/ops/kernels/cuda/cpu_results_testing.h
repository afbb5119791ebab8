// What tests of programs compare with: inputs, and the CPU's results. For tests only.
#pragma once

#include <cmath>
#include <complex>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/ops/kernels/cuda/host_programs_testing.h"
#include "millrace/session/session.h"

namespace millrace {

// Small numbers of any type; some are equal.
inline Tensor Noise(DType dtype, const Shape& shape, uint32_t seed) {
  Tensor wide(DType::kFloat, shape);
  uint32_t state = seed;
  for (float& x : wide.flat<float>()) {
    state = state * 1664525u + 1013904223u;
    x = std::floor(static_cast<float>(state >> 8) / static_cast<float>(1 << 24) * 64) / 16 -
        (dtype == DType::kBool ? 2 : 1);
  }
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/device:CPU:0";
  const Endpoint y = b.Cast(b.Const(wide), dtype);
  auto session = Session::Create().value();
  EXPECT_TRUE(session->Extend(graph).ok());
  return session->Run({y.name()}).value()[0];
}

// The results of one op on the CPU.
inline std::vector<Tensor> OnCpu(const std::string& op, const std::vector<Tensor>& inputs, const AttrList& attrs,
                                 int outputs = 1) {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/device:CPU:0";
  std::vector<Endpoint> values;
  for (const Tensor& input : inputs) values.push_back(b.Const(input));
  Node* const node = b.AddNode(op, values, attrs, "result");
  EXPECT_TRUE(b.ok()) << b.status();
  auto session = Session::Create().value();
  EXPECT_TRUE(session->Extend(graph).ok());
  std::vector<std::string> fetches;
  for (int i = 0; i < outputs; ++i) fetches.push_back(node->output(i).name());
  StatusOr<std::vector<Tensor>> results = session->Run(fetches);
  EXPECT_TRUE(results.ok()) << results.status();
  return *std::move(results);
}

inline double At(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kHalf:
      return static_cast<float>(t.data<half>()[i]);
    case DType::kBFloat16:
      return static_cast<float>(t.data<bfloat16>()[i]);
    case DType::kFloat:
      return t.data<float>()[i];
    case DType::kDouble:
      return t.data<double>()[i];
    case DType::kBool:
      return t.data<bool>()[i];
    case DType::kInt8:
      return t.data<int8_t>()[i];
    case DType::kInt64:
      return static_cast<double>(t.data<int64_t>()[i]);
    case DType::kComplex64:
      return t.data<std::complex<float>>()[i].real() + 1000.0 * t.data<std::complex<float>>()[i].imag();
    default:
      ADD_FAILURE() << DTypeName(t.dtype());
      return 0;
  }
}

inline void ExpectNear(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  const double tolerance = want.dtype() == DType::kHalf ? 2e-3 : want.dtype() == DType::kBFloat16 ? 1e-2 : 1e-5;
  int wrong = 0;
  for (int64_t i = 0; i < want.num_elements() && wrong < 3; ++i) {
    const double a = At(got, i), b = At(want, i);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance * (1 + std::abs(b))) continue;
    ADD_FAILURE() << "element " << i << " is " << a << ", not " << b;
    ++wrong;
  }
}

inline bool IsNan(const Tensor& t, int64_t i) { return IsFloating(t.dtype()) && std::isnan(At(t, i)); }

// Every bit, but for those of NaN.
inline void ExpectSame(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.dtype(), want.dtype());
  ASSERT_EQ(got.shape(), want.shape());
  if (want.num_elements() == 0) return;
  const size_t size = SizeOf(want.dtype());
  const char *const a = static_cast<const char*>(got.raw_data()), *const b = static_cast<const char*>(want.raw_data());
  int wrong = 0;
  for (int64_t i = 0; i < want.num_elements() && wrong < 3; ++i) {
    if (std::memcmp(a + i * size, b + i * size, size) == 0 || (IsNan(got, i) && IsNan(want, i))) continue;
    ADD_FAILURE() << "element " << i << " of " << want.shape().ToString() << " differs: " << got.DebugString()
                  << ", not " << want.DebugString();
    ++wrong;
  }
}

// Launches as CudaCall does, but with few blocks, so that threads go on to further elements.
inline void LaunchElements(HostProgram& program, const std::string& kernel, std::vector<void*> arguments) {
  program.Launch(kernel, {2}, {32}, std::move(arguments));
}
inline void LaunchRows(HostProgram& program, const std::string& kernel, std::vector<void*> arguments) {
  program.Launch(kernel, {2, 2}, {4, 3}, std::move(arguments));
}

}  // namespace millrace
