#include "millrace/device/memory_holders.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

thread_local const HolderName* g_innermost = nullptr;

}  // namespace

HolderName::HolderName(absl::string_view kind, absl::string_view name) : kind_(kind), name_(name), outer_(g_innermost) {
  g_innermost = this;
}

HolderName::~HolderName() { g_innermost = outer_; }

std::string HolderName::OfThisThread() {
  return g_innermost == nullptr ? "others" : absl::StrCat(g_innermost->kind_, " ", g_innermost->name_);
}

MemoryHolders& MemoryHolders::Global() {
  static auto* const holders = new MemoryHolders;
  return *holders;
}

void MemoryHolders::Add(const Allocator* allocator, const void* data, size_t bytes) {
  if (bytes < kLeast) return;
  std::string holder = HolderName::OfThisThread();
  MutexLock lock(&mu_);
  blocks_[data] = {.allocator = allocator, .bytes = bytes, .holder = std::move(holder)};
}

void MemoryHolders::Rename(const Tensor& block, absl::string_view kind, absl::string_view name) {
  if (block.TotalBytes() < kLeast) return;
  MutexLock lock(&mu_);
  const auto at = blocks_.find(block.raw_data());
  if (at != blocks_.end()) at->second.holder = absl::StrCat(kind, " ", name);
}

void MemoryHolders::Remove(const void* data, size_t bytes) {
  if (bytes < kLeast) return;
  MutexLock lock(&mu_);
  blocks_.erase(data);
}

std::string MemoryHolders::Largest(const Allocator* allocator) const {
  constexpr size_t kNamed = 3;
  std::map<std::string, size_t> by_holder;
  {
    MutexLock lock(&mu_);
    for (const auto& [data, block] : blocks_) {
      if (block.allocator == allocator) by_holder[block.holder] += block.bytes;
    }
  }
  std::multimap<size_t, std::string, std::greater<>> by_bytes;
  for (const auto& [holder, bytes] : by_holder) by_bytes.emplace(bytes, holder);
  std::string text;
  size_t named = 0;
  for (const auto& [bytes, holder] : by_bytes) {
    if (++named > kNamed) break;
    absl::StrAppend(&text, named == 1 ? "; the largest holders are " : ", ", holder, " (", bytes, " bytes)");
  }
  return text;
}

std::string DeviceShortage(const MemoryBudget& budget, const Allocator* allocator, size_t bytes) {
  const std::string shortage = budget.Shortage(bytes);
  if (shortage.empty()) return {};
  const size_t free = budget.limit() - std::min(budget.limit(), budget.used());
  return absl::StrCat(shortage, ", ", free, " are free", MemoryHolders::Global().Largest(allocator));
}

}  // namespace millrace
