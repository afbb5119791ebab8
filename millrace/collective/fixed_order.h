// All-reduce whose result does not depend on the number of ranks.
#pragma once

#include <memory>
#include <vector>

#include "millrace/base/shard_tree.h"
#include "millrace/collective/algorithm.h"

namespace millrace::collective {

// The value of a node of the shard tree: of one shard, or of several that the caller has combined in the tree's order.
struct ShardValue {
  ShardRange shards;
  const void* data = nullptr;
};

// Combines the values of all shards in the order of the shard tree; kMean divides by the number of shards. `owners` has
// the rank of each shard, and `values` covers this rank's shards (see CheckShardValues). The result goes to the
// workspace, which may be none of the values.
//
// Each rank combines what it can by itself (LargestNodes) and sends the parts of it to the ranks that complete them:
// one segment for each rank, or for few elements rank 0 alone. These send the result to all. It needs memory for what
// is sent, as much as the elements times the number of nodes.
struct FixedOrderOptions {
  size_t chunk_bytes = size_t{256} << 10;
  // Up to this size rank 0 completes all sums.
  size_t one_segment_bytes = size_t{64} << 10;
};
std::unique_ptr<Algorithm> NewFixedOrder(Place place, Workspace work, int64_t count, std::vector<int> owners,
                                         std::vector<ShardValue> values, FixedOrderOptions options);

// INVALID_ARGUMENT unless the values are nodes of the tree and cover each shard of `rank` exactly once.
Status CheckShardValues(absl::Span<const ShardValue> values, absl::Span<const int> owners, int rank);

}  // namespace millrace::collective
