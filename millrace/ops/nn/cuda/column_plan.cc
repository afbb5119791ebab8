#include "millrace/ops/nn/cuda/column_plan.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kThreads = 256;

int64_t Blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

}  // namespace

ColumnPlan ColumnPlan::Of(int64_t columns, int64_t count, bool by_columns) {
  constexpr int64_t kWidest = 32, kEnoughBlocks = 1024, kLeastOfALane = 8;
  int64_t width = 1;
  while (by_columns && width < kWidest && width < columns) width *= 2;
  const int64_t lanes = kThreads / width, along = Blocks(columns, width);
  const int64_t wanted = std::clamp<int64_t>(Blocks(count, lanes * kLeastOfALane), 1,
                                             std::max<int64_t>(kEnoughBlocks / std::max<int64_t>(along, 1), 1));
  ColumnPlan plan;
  plan.columns = {columns, count, std::max<int64_t>(Blocks(Blocks(count, wanted), lanes) * lanes, 1), by_columns};
  plan.threads[0] = static_cast<unsigned>(by_columns ? width : lanes);
  plan.threads[1] = static_cast<unsigned>(by_columns ? lanes : width);
  plan.blocks[0] = static_cast<unsigned>(along);
  plan.blocks[1] = static_cast<unsigned>(std::max<int64_t>(Blocks(count, plan.columns.step), 1));
  return plan;
}

ColumnPlan ColumnPlan::Join() const {
  constexpr int64_t kWidth = 32;
  ColumnPlan plan;
  plan.columns = {columns.columns, pieces(), pieces(), 1};
  plan.threads[0] = kWidth;
  plan.threads[1] = kThreads / kWidth;
  plan.blocks[0] = static_cast<unsigned>(Blocks(columns.columns, kWidth));
  return plan;
}

}  // namespace millrace
