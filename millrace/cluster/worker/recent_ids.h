// A bounded set of recently seen ids, for recognising duplicate and late messages.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace millrace {

// Remembers the last `capacity` ids. Not thread-safe.
class RecentIds {
 public:
  explicit RecentIds(size_t capacity) : capacity_(capacity) {}

  // Returns false if the id is already remembered.
  bool Insert(int64_t id) {
    if (!known_.insert(id).second) return false;
    if (order_.size() < capacity_) {
      order_.push_back(id);
    } else {
      known_.erase(order_[oldest_]);
      order_[oldest_] = id;
      oldest_ = (oldest_ + 1) % capacity_;
    }
    return true;
  }
  bool Contains(int64_t id) const { return known_.contains(id); }

 private:
  const size_t capacity_;
  size_t oldest_ = 0;
  std::vector<int64_t> order_;
  absl::flat_hash_set<int64_t> known_;
};

}  // namespace millrace
