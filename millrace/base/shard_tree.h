// The fixed tree in which the values of logical shards are combined, whoever has them.
//
// A node is a range of shards. The node of one shard is its value; that of several is the combination of its two
// halves, of which the left has the largest power of two of shards that is less than all. So the result depends on the
// number of shards and on their values, and not on the number of ranks.
#pragma once

#include <compare>
#include <vector>

#include "absl/types/span.h"

namespace millrace {

// The shards first, ..., last - 1.
struct ShardRange {
  int first = 0;
  int last = 0;
  auto operator<=>(const ShardRange&) const = default;
  int size() const { return last - first; }
  // Valid for more than one shard.
  ShardRange left() const;
  ShardRange right() const { return {left().last, last}; }
};

// True if the range is a node of the tree of `shards` shards.
bool IsNode(ShardRange range, int shards);

// The largest nodes all of whose shards belong to `rank`, in order; `owners` has the rank of each shard. A rank can
// combine these by itself, and no more.
std::vector<ShardRange> LargestNodes(absl::Span<const int> owners, int rank);

// Which rank has which shard if nothing else is said: contiguous and nearly equal parts, larger ones last.
std::vector<int> EvenOwners(int shards, int ranks);

}  // namespace millrace
