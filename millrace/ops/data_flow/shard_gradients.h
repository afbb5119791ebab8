// Gradients of the logical shards of a global batch, added in the order of the shard tree (base/shard_tree.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/shard_tree.h"
#include "millrace/ops/data_flow/gradient_sum.h"

namespace millrace {

// Keeps what it got of each step until it is taken, so the sum depends neither on the order of arrival nor on how the
// shards are shared out. Not thread-safe.
class ShardGradients {
 public:
  ShardGradients(DType dtype, PartialShape shape, bool sparse, int shards);

  // Adds the gradient of the shards part.shards, a node of the tree. False, with no change, if all of them are there
  // already: a worker that was started again computes what its predecessor had given. INVALID_ARGUMENT if the shape is
  // incompatible or the range is not a node.
  StatusOr<bool> Add(int64_t step, const GradientPart& part);
  // The number of shards that are there, and the others: "2, 3".
  int64_t count(int64_t step) const;
  std::string Missing(int64_t step) const;
  // Returns the sum over all shards, divided by their number if `mean`: {values}, or {indices, values, shape} of the
  // rows that any shard has. All must be there. The result is kept until a gradient of a later step comes.
  StatusOr<std::vector<Tensor>> Take(int64_t step, bool mean);
  // Forgets earlier steps; or, if the last sum was taken at `step`, offers it once more: whoever took it may have been
  // lost before it was used. Any other step back begins from nothing.
  void MoveTo(int64_t step, bool back);

 private:
  using Parts = std::map<ShardRange, std::vector<Tensor>>;  // {values}, or {indices, values} with sorted, unique rows

  StatusOr<std::vector<Tensor>> Checked(const GradientPart& part) const;
  StatusOr<std::vector<Tensor>> Sum(const Parts& parts, ShardRange node) const;
  std::unique_ptr<GradientSum> NewSum() const;

  const DType dtype_;
  const PartialShape shape_;
  const bool sparse_;
  const int shards_;
  std::map<int64_t, Parts> steps_;
  // The sum that was taken last, and whether it is to be taken again.
  int64_t taken_step_ = -1;
  std::vector<Tensor> taken_;
  bool again_ = false;
};

}  // namespace millrace
