// Every kernel over rows that an op may need compiles for an H200, on machines without a GPU.
#include "millrace/ops/nn/cuda/row_program.h"

#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/compile_testing.h"

namespace millrace {
namespace {

TEST(RowProgram, EveryOpCompilesForEveryType) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  std::string kernels;
  int number = 0;
  const auto add = [&](const RowProgram& program) { kernels += program.Kernel(absl::StrCat("kernel", number++)); };
  for (const DType dtype : {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble}) {
    for (const char* op : {"Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits"}) add({.op = op, .dtype = dtype});
    for (const DType classes : {DType::kInt32, DType::kInt64})
      add({.op = "SparseSoftmaxCrossEntropyWithLogits", .dtype = dtype, .classes = classes});
  }
  ExpectCompilesWithoutSpills(RowProgram::Headers() + kernels);
}

}  // namespace
}  // namespace millrace
