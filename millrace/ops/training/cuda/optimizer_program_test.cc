// Every optimizer's update compiles for an H200, on machines without a GPU.
#include "millrace/ops/training/cuda/optimizer_program.h"

#include <set>

#include "gtest/gtest.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/cuda/compile_testing.h"

namespace millrace {
namespace {

TEST(OptimizerProgram, EveryOpCompilesForEveryType) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  std::string kernels, rows;
  std::set<std::string> seen;  // ops of both kinds of variables share programs
  for (const GpuOptimizer& optimizer : GpuOptimizers()) {
    ASSERT_NE(OpRegistry::Global().FindOrNull(optimizer.op), nullptr) << optimizer.op;
    for (const DType dtype : optimizer.types) {
      const std::string name = absl::StrCat(optimizer.op, static_cast<int>(dtype));
      const OptimizerProgram& program = optimizer.program;
      if (!seen.insert(optimizer.by_rows ? program.RowsKernel("", dtype) : program.Kernel("", dtype)).second) continue;
      (optimizer.by_rows ? rows : kernels) +=
          optimizer.by_rows ? program.RowsKernel(name, dtype) : program.Kernel(name, dtype);
    }
  }
  ExpectCompilesWithoutSpills(OptimizerProgram::Headers() + kernels);
  ExpectCompilesWithoutSpills(OptimizerProgram::RowsHeaders() + rows);
}

}  // namespace
}  // namespace millrace
