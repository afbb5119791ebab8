#include "millrace/runtime/wait_registry.h"

#include <algorithm>
#include <utility>

namespace millrace {

uint64_t WaitRegistry::Begin(Wait wait, Describer describe) {
  wait.since = clock_->Now();
  MutexLock lock(&mu_);
  waits_.emplace(next_, Entry{std::move(wait), std::move(describe)});
  return next_++;
}

void WaitRegistry::End(uint64_t wait) {
  Entry ended;  // destroyed after the lock is released
  MutexLock lock(&mu_);
  const auto it = waits_.find(wait);
  if (it == waits_.end()) return;
  ended = std::move(it->second);
  waits_.erase(it);
}

std::vector<Wait> WaitRegistry::List() const {
  std::vector<Entry> entries;
  {
    MutexLock lock(&mu_);
    entries.reserve(waits_.size());
    for (const auto& [number, entry] : waits_) entries.push_back(entry);
  }
  std::vector<Wait> waits;
  for (Entry& entry : entries) {
    if (entry.describe != nullptr) entry.describe(&entry.wait);
    waits.push_back(std::move(entry.wait));
  }
  std::sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.since < b.since; });
  return waits;
}

}  // namespace millrace
