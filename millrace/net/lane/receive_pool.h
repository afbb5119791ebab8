// Memory for what arrives.
#pragma once

#include <cstddef>
#include <map>

#include "millrace/base/mutex.h"
#include "millrace/net/received_buffer.h"

namespace millrace::net {

// Keeps blocks that come back, up to a limit: copying into fresh pages costs several times the copy.
//
// Thread-safe. Buffers may outlive their last user here and keep the pool alive.
class ReceivePool : public Allocator, public RefCounted {
 public:
  explicit ReceivePool(size_t kept_bytes) : limit_(kept_bytes) {}
  // A ReceivedBuffer of exactly this size.
  RefPtr<Buffer> Allocate(size_t bytes) override;
  const char* name() const override { return "lane"; }

  // Blocks that are in use.
  int64_t in_use() const;
  size_t kept() const;

 private:
  class PooledBuffer;
  void Return(RefPtr<Buffer> block);

  const size_t limit_;
  mutable Mutex mu_;
  int64_t in_use_ ABSL_GUARDED_BY(mu_) = 0;
  size_t kept_ ABSL_GUARDED_BY(mu_) = 0;
  // By size; of one size the last that came back is the first to go out, while it is warm.
  std::multimap<size_t, RefPtr<Buffer>> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
