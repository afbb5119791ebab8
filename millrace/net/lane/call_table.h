// The calls of a connection that have not ended, by number.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/ref.h"

namespace millrace::net {

// Not thread-safe: its link's lock guards it. What is taken out may be the last reference, which goes without that lock.
template <typename Call>
class CallTable {
 public:
  size_t size() const { return calls_.size(); }
  // False when there is one of that number.
  [[nodiscard]] bool Add(uint64_t number, RefPtr<Call> call) { return calls_.emplace(number, std::move(call)).second; }
  // Null when it has ended.
  RefPtr<Call> Find(uint64_t number) const {
    const auto it = calls_.find(number);
    return it == calls_.end() ? nullptr : it->second;
  }
  // It ends now. Null when it has ended before.
  RefPtr<Call> Take(uint64_t number) {
    const auto it = calls_.find(number);
    if (it == calls_.end()) return nullptr;
    RefPtr<Call> call = std::move(it->second);
    calls_.erase(it);
    return call;
  }
  std::vector<std::pair<uint64_t, RefPtr<Call>>> TakeAll() {
    std::vector<std::pair<uint64_t, RefPtr<Call>>> all(calls_.begin(), calls_.end());
    calls_.clear();
    return all;
  }

 private:
  absl::flat_hash_map<uint64_t, RefPtr<Call>> calls_;
};

}  // namespace millrace::net
