// How a batch of products with broadcast operands is cut into uniform ones, for cuBLAS. Needs no GPU.
#include "gtest/gtest.h"
#include "millrace/ops/math/batch_matmul.h"

namespace millrace {
namespace {

// The batch of x and y of these batch dimensions, which have as many dimensions.
BatchMatMulOp::Call CallOf(const std::vector<int64_t>& x, const std::vector<int64_t>& y) {
  BatchMatMulOp::Call call;
  const size_t n = x.size();
  call.batch.resize(n);
  call.step_x.resize(n);
  call.step_y.resize(n);
  int64_t size_x = 1, size_y = 1;
  for (size_t d = n; d-- > 0;) {
    call.batch[d] = std::max(x[d], y[d]);
    call.step_x[d] = x[d] == 1 ? 0 : size_x;
    call.step_y[d] = y[d] == 1 ? 0 : size_y;
    size_x *= x[d];
    size_y *= y[d];
  }
  return call;
}

TEST(SplitBatch, EveryProductIsMadeOnceOfItsOperands) {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> cases = {{{}, {}},
                                                                                    {{7}, {7}},
                                                                                    {{4, 5}, {4, 5}},
                                                                                    {{4, 5}, {1, 1}},
                                                                                    {{1, 5}, {4, 1}},
                                                                                    {{4, 1}, {1, 5}},
                                                                                    {{4, 5}, {1, 5}},
                                                                                    {{2, 1, 3}, {2, 4, 3}},
                                                                                    {{2, 4, 1}, {1, 4, 3}},
                                                                                    {{1, 1}, {1, 1}},
                                                                                    {{2, 3, 4, 5}, {2, 1, 4, 1}}};
  for (const auto& [x, y] : cases) {
    const BatchMatMulOp::Call call = CallOf(x, y);
    std::vector<std::pair<int64_t, int64_t>> want = {{0, 0}};  // operands, by product
    for (size_t d = 0; d < call.batch.size(); ++d) {
      std::vector<std::pair<int64_t, int64_t>> wider;
      for (const auto& [a, b] : want) {
        for (int64_t i = 0; i < call.batch[d]; ++i) wider.push_back({a + i * call.step_x[d], b + i * call.step_y[d]});
      }
      want = wider;
    }
    const UniformBatches batches = SplitBatch(call);
    std::vector<std::pair<int64_t, int64_t>> got(want.size(), {-1, -1});
    for (const UniformBatches::Start& start : batches.starts) {
      for (int64_t i = 0; i < batches.count; ++i) {
        const size_t product = start.product + i * batches.step_product;
        ASSERT_LT(product, got.size());
        EXPECT_EQ(got[product].first, -1) << "made twice";
        got[product] = {start.x + i * batches.step_x, start.y + i * batches.step_y};
      }
    }
    EXPECT_EQ(got, want);
  }
}

// One call for what attention and dense layers multiply.
TEST(SplitBatch, UniformBatchesAreOneCall) {
  EXPECT_EQ(SplitBatch(CallOf({8, 12}, {8, 12})).starts.size(), 1u);
  EXPECT_EQ(SplitBatch(CallOf({8, 12}, {8, 12})).count, 96);
  EXPECT_EQ(SplitBatch(CallOf({8, 12}, {1, 1})).starts.size(), 1u);
  EXPECT_EQ(SplitBatch(CallOf({8, 12}, {1, 12})).starts.size(), 8u);
}

}  // namespace
}  // namespace millrace
