// Memory to receive into.
#pragma once

#include <cstddef>
#include <map>

#include "millrace/base/mutex.h"
#include "millrace/net/received_buffer.h"

namespace millrace::net {

// Keeps returned blocks for reuse, up to a limit: copying into fresh pages costs several times as much as into touched
// ones.
//
// Thread-safe. Buffers keep the pool alive.
class ReceivePool : public Allocator, public RefCounted {
 public:
  explicit ReceivePool(size_t kept_bytes) : limit_(kept_bytes) {}
  // A ReceivedBuffer of exactly this size.
  RefPtr<Buffer> Allocate(size_t bytes) override;
  const char* name() const override { return "lane"; }

  // The number of blocks in use.
  int64_t in_use() const;
  size_t kept() const;

 private:
  class PooledBuffer;
  void Return(RefPtr<Buffer> block);

  const size_t limit_;
  mutable Mutex mu_;
  int64_t in_use_ ABSL_GUARDED_BY(mu_) = 0;
  size_t kept_ ABSL_GUARDED_BY(mu_) = 0;
  // By size. Within a size, the block that was returned last is reused first, because it is still in the cache.
  std::multimap<size_t, RefPtr<Buffer>> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
