// The open calls of a connection, by number.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/ref.h"

namespace millrace::net {

// Not thread-safe: guarded by its link's lock. What is taken out may be the last reference, to be dropped without that
// lock.
template <typename Call>
class CallTable {
 public:
  size_t size() const { return calls_.size(); }
  // Returns false if the number is in use.
  [[nodiscard]] bool Add(uint64_t number, RefPtr<Call> call) { return calls_.emplace(number, std::move(call)).second; }
  // Null if it has ended.
  RefPtr<Call> Find(uint64_t number) const {
    const auto it = calls_.find(number);
    return it == calls_.end() ? nullptr : it->second;
  }
  // Removes it, because it ends now. Null if it has ended before.
  RefPtr<Call> Take(uint64_t number) {
    const auto it = calls_.find(number);
    if (it == calls_.end()) return nullptr;
    RefPtr<Call> call = std::move(it->second);
    calls_.erase(it);
    return call;
  }
  std::vector<RefPtr<Call>> List() const {
    std::vector<RefPtr<Call>> all;
    for (const auto& [number, call] : calls_) all.push_back(call);
    return all;
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
