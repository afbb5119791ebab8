#include "millrace/base/cancellation.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace millrace {

void CancellationManager::StartCancel(Status why) {
  absl::flat_hash_map<Token, absl::AnyInvocable<void()>> callbacks;
  {
    MutexLock lock(&mu_);
    if (cancelled_.load(std::memory_order_relaxed)) return;
    why_ = std::move(why);
    calling_ = true;
    cancelled_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  // In token order, so that a simulation is deterministic.
  std::vector<std::pair<Token, absl::AnyInvocable<void()>*>> ordered;
  ordered.reserve(callbacks.size());
  for (auto& [token, callback] : callbacks) ordered.emplace_back(token, &callback);
  std::sort(ordered.begin(), ordered.end());
  for (const auto& [token, callback] : ordered) (*callback)();
  MutexLock lock(&mu_);
  calling_ = false;
  callbacks_done_.SignalAll();
}

Status CancellationManager::status() const {
  if (!IsCancelled()) return absl::OkStatus();
  MutexLock lock(&mu_);
  return why_;
}

bool CancellationManager::Register(Token token, absl::AnyInvocable<void()> callback) {
  MutexLock lock(&mu_);
  if (cancelled_.load(std::memory_order_relaxed)) return false;
  callbacks_.emplace(token, std::move(callback));
  return true;
}

bool CancellationManager::Deregister(Token token) {
  MutexLock lock(&mu_);
  if (!cancelled_.load(std::memory_order_relaxed)) return callbacks_.erase(token) > 0;
  while (calling_) callbacks_done_.Wait(&mu_);
  return false;
}

}  // namespace millrace
