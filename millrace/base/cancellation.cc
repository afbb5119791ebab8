#include "millrace/base/cancellation.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace millrace {

void CancellationManager::Callbacks::Add(Token token, absl::AnyInvocable<void()> callback) {
  if (few_.size() < few_.capacity()) {
    few_.emplace_back(token, std::move(callback));
  } else {
    more_.emplace(token, std::move(callback));
  }
}

absl::AnyInvocable<void()> CancellationManager::Callbacks::Take(Token token) {
  for (auto it = few_.begin(); it != few_.end(); ++it) {
    if (it->first != token) continue;
    absl::AnyInvocable<void()> callback = std::move(it->second);
    few_.erase(it);
    return callback;
  }
  auto node = more_.extract(token);
  return node.empty() ? nullptr : std::move(node.mapped());
}

std::vector<std::pair<CancellationManager::Token, absl::AnyInvocable<void()>>>
CancellationManager::Callbacks::TakeAll() {
  std::vector<std::pair<Token, absl::AnyInvocable<void()>>> all;
  all.reserve(few_.size() + more_.size());
  for (auto& entry : few_) all.push_back(std::move(entry));
  for (auto& [token, callback] : more_) all.emplace_back(token, std::move(callback));
  few_.clear();
  more_.clear();
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return all;
}

void CancellationManager::StartCancel(Status why) {
  std::vector<std::pair<Token, absl::AnyInvocable<void()>>> callbacks;
  {
    MutexLock lock(&mu_);
    if (cancelled_.load(std::memory_order_relaxed)) return;
    why_ = std::move(why);
    calling_ = true;
    cancelled_.store(true, std::memory_order_release);
    callbacks = callbacks_.TakeAll();
  }
  for (auto& [token, callback] : callbacks) callback();
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
  callbacks_.Add(token, std::move(callback));
  return true;
}

bool CancellationManager::Deregister(Token token) {
  absl::AnyInvocable<void()> removed;  // destroyed without the lock
  MutexLock lock(&mu_);
  if (!cancelled_.load(std::memory_order_relaxed)) {
    removed = callbacks_.Take(token);
    return removed != nullptr;
  }
  while (calling_) callbacks_done_.Wait(&mu_);
  return false;
}

}  // namespace millrace
