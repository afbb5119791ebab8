// Every program of convolutions, pools and batch normalisation compiles for an H200, on machines without a GPU, and
// keeps what it works on in registers.
#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/compile_testing.h"
#include "millrace/ops/nn/cuda/batch_norm_program.h"
#include "millrace/ops/nn/cuda/column_plan.h"
#include "millrace/ops/nn/cuda/conv_program.h"
#include "millrace/ops/nn/cuda/plan_cache.h"
#include "millrace/ops/nn/cuda/pool_program.h"

namespace millrace {
namespace {

TEST(NnPrograms, CompileForEveryTypeWithoutSpills) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  std::string convolutions = ConvProgram::Headers(), norms = BatchNormProgram::Headers(),
              pools = PoolProgram::Headers();
  for (const DType dtype : {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble}) {
    convolutions += ConvProgram{.dtype = dtype}.Kernels(absl::StrCat("_", DTypeName(dtype)));
    pools += PoolProgram{.dtype = dtype, .averages = true}.Kernels(absl::StrCat("_", DTypeName(dtype)));
    if (dtype == DType::kDouble) continue;
    norms += BatchNormProgram{.dtype = dtype}.Kernels(absl::StrCat("_", DTypeName(dtype)));
  }
  for (const DType dtype : {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble, DType::kInt8, DType::kUInt8,
                            DType::kInt16, DType::kUInt16, DType::kUInt32, DType::kInt64, DType::kUInt64}) {
    pools += PoolProgram{.dtype = dtype}.Kernels(absl::StrCat("_", DTypeName(dtype)));
  }
  ExpectCompilesWithoutSpills(convolutions);
  ExpectCompilesWithoutSpills(norms);
  ExpectCompilesWithoutSpills(pools);
}

// Every element is in one piece, whatever the sizes.
TEST(ColumnPlan, PiecesCoverAllElementsOnce) {
  for (const int64_t columns : {1, 3, 16, 40, 100000}) {
    for (const int64_t count : {0, 1, 7, 300, 5000, 1000000}) {
      for (const bool by_columns : {false, true}) {
        const ColumnPlan plan = ColumnPlan::Of(columns, count, by_columns);
        EXPECT_GE(plan.pieces(), 1);
        EXPECT_LE(plan.pieces(), 1024);
        EXPECT_GE(plan.pieces() * plan.columns.step, count);
        EXPECT_LT((plan.pieces() - 1) * plan.columns.step, std::max<int64_t>(count, 1));
        EXPECT_GE(int64_t{plan.blocks[0]} * (by_columns ? plan.threads[0] : plan.threads[1]), columns);
        EXPECT_EQ(plan.threads[0] * plan.threads[1], 256);
      }
    }
  }
  EXPECT_GT(ColumnPlan::Of(16, 128 * 32 * 32, true).pieces(), 100);
}

TEST(PlanCache, TheOneNotUsedForLongestGoes) {
  PlanCache<int, int> cache(2);
  int made = 0;
  const auto make = [&] { return ++made; };
  EXPECT_EQ(cache.Get(10, make), 1);
  EXPECT_EQ(cache.Get(20, make), 2);
  EXPECT_EQ(cache.Get(10, make), 1);
  EXPECT_EQ(cache.Get(30, make), 3);  // 20 goes
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.Get(10, make), 1);
  EXPECT_EQ(cache.Get(20, make), 4);
}

}  // namespace
}  // namespace millrace
