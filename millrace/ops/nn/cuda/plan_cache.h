// A map that forgets what was not used for longest.
#pragma once

#include <cstddef>
#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace millrace {

// Not thread-safe.
template <typename Key, typename Value>
class PlanCache {
 public:
  explicit PlanCache(size_t most) : most_(most) {}

  // The value of `key`, of make() the first time. It stays until the next call.
  template <typename Make>
  const Value& Get(const Key& key, Make make) {
    const auto found = places_.find(key);
    if (found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->second;
    }
    entries_.emplace_front(key, make());
    places_[key] = entries_.begin();
    if (entries_.size() > most_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }
  size_t size() const { return entries_.size(); }

 private:
  const size_t most_;
  std::list<std::pair<Key, Value>> entries_;  // the last used first
  absl::flat_hash_map<Key, typename std::list<std::pair<Key, Value>>::iterator> places_;
};

}  // namespace millrace
