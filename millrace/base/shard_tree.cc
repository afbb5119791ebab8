#include "millrace/base/shard_tree.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace millrace {
namespace {

void AddLargest(ShardRange node, absl::Span<const int> owners, int rank, std::vector<ShardRange>* nodes) {
  const auto begin = owners.begin() + node.first, end = owners.begin() + node.last;
  if (std::find(begin, end, rank) == end) return;
  if (std::all_of(begin, end, [&](int owner) { return owner == rank; })) return nodes->push_back(node);
  AddLargest(node.left(), owners, rank, nodes);
  AddLargest(node.right(), owners, rank, nodes);
}

}  // namespace

ShardRange ShardRange::left() const {
  return {first, first + static_cast<int>(std::bit_ceil(static_cast<unsigned>(size())) / 2)};
}

bool IsNode(ShardRange range, int shards) {
  if (range.first < 0 || range.last > shards || range.size() < 1) return false;
  ShardRange node{0, shards};
  while (node != range) {
    if (node.size() == 1) return false;
    node = range.first < node.left().last ? node.left() : node.right();
    if (range.first < node.first || range.last > node.last) return false;
  }
  return true;
}

std::vector<ShardRange> LargestNodes(absl::Span<const int> owners, int rank) {
  std::vector<ShardRange> nodes;
  if (!owners.empty()) AddLargest({0, static_cast<int>(owners.size())}, owners, rank, &nodes);
  return nodes;
}

std::vector<int> EvenOwners(int shards, int ranks) {
  std::vector<int> owners(shards);
  for (int rank = 0; rank < ranks; ++rank) {
    const int first = static_cast<int>(int64_t{shards} * rank / ranks);
    const int last = static_cast<int>(int64_t{shards} * (rank + 1) / ranks);
    std::fill(owners.begin() + first, owners.begin() + last, rank);
  }
  return owners;
}

}  // namespace millrace
