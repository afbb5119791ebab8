#include "millrace/net/lane/receive_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace millrace::net {
namespace {

// Eight sizes for each power of two, in whole pages: at most an eighth is wasted, and steps whose tensor sizes vary
// slightly still reuse blocks.
size_t BlockSize(size_t bytes) {
  constexpr size_t kPage = 4096;
  size_t step = kPage;
  while (step * 16 < bytes) step *= 2;
  return std::max(kPage, (bytes + step - 1) / step * step);
}

}  // namespace

class ReceivePool::PooledBuffer final : public ReceivedBuffer {
 public:
  PooledBuffer(RefPtr<ReceivePool> pool, RefPtr<Buffer> block, size_t size)
      : ReceivedBuffer(block->data(), size), pool_(std::move(pool)), block_(std::move(block)) {}

 private:
  void Destroy() override {
    pool_->Return(std::move(block_));
    delete this;
  }
  const RefPtr<ReceivePool> pool_;
  RefPtr<Buffer> block_;
};

RefPtr<Buffer> ReceivePool::Allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t size = BlockSize(bytes);
  RefPtr<Buffer> block;
  {
    MutexLock lock(&mu_);
    ++in_use_;
    auto after = free_.upper_bound(size);
    if (after != free_.begin() && std::prev(after)->first == size) {
      --after;
      block = std::move(after->second);
      free_.erase(after);
      kept_ -= size;
    }
  }
  if (!block) block = Heap()->Allocate(size);
  if (!block) {
    MutexLock lock(&mu_);
    --in_use_;
    return nullptr;
  }
  return MakeRef<PooledBuffer>(ShareRef(this), std::move(block), bytes);
}

void ReceivePool::Return(RefPtr<Buffer> block) {
  std::vector<RefPtr<Buffer>> freed;  // released without the lock
  MutexLock lock(&mu_);
  --in_use_;
  const size_t size = block->size();
  if (size > limit_) {
    freed.push_back(std::move(block));
    return;
  }
  // Makes room by freeing blocks of other sizes, which are no longer requested; the largest first.
  while (kept_ + size > limit_) {
    auto victim = std::prev(free_.end());
    if (victim->first == size && free_.begin()->first != size) victim = free_.begin();
    kept_ -= victim->first;
    freed.push_back(std::move(victim->second));
    free_.erase(victim);
  }
  kept_ += size;
  free_.emplace(size, std::move(block));
}

int64_t ReceivePool::in_use() const {
  MutexLock lock(&mu_);
  return in_use_;
}

size_t ReceivePool::kept() const {
  MutexLock lock(&mu_);
  return kept_;
}

}  // namespace millrace::net
