// Every optimizer's update compiles for an H200, on machines without a GPU.
#include "millrace/ops/training/cuda/optimizer_program.h"

#include <set>

#include "gtest/gtest.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/cuda/nvrtc.h"

namespace millrace {
namespace {

TEST(OptimizerProgram, EveryOpCompilesForEveryType) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  std::string kernels;
  std::set<std::string> seen;  // ops of both kinds of variables share programs
  for (const GpuOptimizer& optimizer : GpuOptimizers()) {
    ASSERT_NE(OpRegistry::Global().FindOrNull(optimizer.op), nullptr) << optimizer.op;
    for (const DType dtype : optimizer.types) {
      const std::string name = absl::StrCat(optimizer.op, static_cast<int>(dtype));
      if (seen.insert(optimizer.program.Kernel("", dtype)).second) kernels += optimizer.program.Kernel(name, dtype);
    }
  }
  const StatusOr<std::string> code = CompileForGpu(OptimizerProgram::Headers() + kernels, 90);
  EXPECT_TRUE(code.ok()) << code.status();
}

}  // namespace
}  // namespace millrace
