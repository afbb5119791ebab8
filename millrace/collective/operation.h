// What the ranks of a group agree on before they exchange data: one operation, as each of them describes it.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/status.h"
#include "millrace/collective/reduction.h"
#include "millrace/net/bytes.h"

namespace millrace::collective {

enum class OperationKind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kBarrier };
inline constexpr int kOperationKinds = 6;

// How data travels. kAuto chooses by size, number of ranks and hosts.
enum class AlgorithmKind : uint8_t {
  kAuto,
  kRing,
  kHalvingDoubling,
  kDoubling,
  kTree,
  kDirect,
  kFixedOrder,
  kHierarchy,
};
inline constexpr int kAlgorithmKinds = 8;
absl::string_view AlgorithmName(AlgorithmKind kind);

// A description of an operation; it must be the same on all ranks. The order of the operations of a group is part of
// it: the n-th of one rank must be the n-th of all.
struct OperationSpec {
  OperationKind kind = OperationKind::kBarrier;
  std::string key = {};  // the instance key
  DType dtype = DType::kInvalid;
  Reduction reduction = Reduction::kSum;
  AlgorithmKind algorithm = AlgorithmKind::kAuto;
  int64_t count = 0;    // of all elements that the operation is about
  int64_t root = 0;     // of a broadcast
  uint64_t layout = 0;  // a hash of what else must be the same: the sizes of the parts, who has which shard, the hosts

  bool operator==(const OperationSpec&) const = default;
  size_t bytes() const { return static_cast<size_t>(count) * SizeOf(dtype); }
};

// "all-reduce 'grads' (sum of 100 float, ring)".
std::string Describe(const OperationSpec& spec);
// INVALID_ARGUMENT with both ranks, and what each of them does, unless both do the same.
Status CheckSame(const std::string& rank_a, const OperationSpec& a, const std::string& rank_b, const OperationSpec& b);

inline constexpr size_t kLongestKey = 1024;
void AppendSpec(const OperationSpec& spec, std::string* out);
// False if the bytes are not a description.
[[nodiscard]] bool ReadSpec(net::BytesReader* reader, OperationSpec* spec);

}  // namespace millrace::collective
