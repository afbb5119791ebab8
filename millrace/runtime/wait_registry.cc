#include "millrace/runtime/wait_registry.h"

#include <algorithm>

namespace millrace {

uint64_t WaitRegistry::Begin(std::string node, std::string what, int64_t step_id) {
  Wait wait{.node = std::move(node), .what = std::move(what), .step_id = step_id, .since = clock_->Now()};
  MutexLock lock(&mu_);
  waits_.emplace(next_, std::move(wait));
  return next_++;
}

void WaitRegistry::Describe(uint64_t wait, std::string what) {
  MutexLock lock(&mu_);
  if (const auto it = waits_.find(wait); it != waits_.end()) it->second.what = std::move(what);
}

void WaitRegistry::End(uint64_t wait) {
  MutexLock lock(&mu_);
  waits_.erase(wait);
}

std::vector<Wait> WaitRegistry::List() const {
  std::vector<Wait> waits;
  {
    MutexLock lock(&mu_);
    for (const auto& [number, wait] : waits_) waits.push_back(wait);
  }
  std::sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.since < b.since; });
  return waits;
}

}  // namespace millrace
