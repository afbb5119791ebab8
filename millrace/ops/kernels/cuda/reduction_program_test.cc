// Every reduction that an op may need compiles for an H200, on machines without a GPU.
#include "millrace/ops/kernels/cuda/reduction_program.h"

#include <map>
#include <set>

#include "gtest/gtest.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/cuda/compile_testing.h"
#include "millrace/ops/kernels/cuda/reduction_ops.h"

namespace millrace {
namespace {

TEST(ReductionProgram, EveryOpCompilesForEveryType) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  std::map<DType, std::string> kernels;
  std::set<std::string> seen;  // ops share programs
  for (const ReductionOp& op : ReductionOps()) {
    ASSERT_NE(OpRegistry::Global().FindOrNull(op.name), nullptr) << op.name;
    for (const DType dtype : op.attr == nullptr ? std::vector<DType>{DType::kBool} : op.types)
      if (seen.insert(op.program.Kernels(dtype)).second) kernels[dtype] += op.program.Kernels(dtype, "_" + op.name);
  }
  for (const auto& [dtype, text] : kernels) {
    ExpectCompilesWithoutSpills(ReductionProgram::Headers() + text);
  }
}

}  // namespace
}  // namespace millrace
