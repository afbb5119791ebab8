// The memory of another rank on this host, from which large messages are read directly into place.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/net/bytes.h"
#include "millrace/net/lane/cross_memory.h"

namespace millrace::collective {

// What a process must know to read another's memory: random bytes at a known address show that it is the right one.
struct MemoryOffer {
  uint64_t process = 0;
  uint64_t address = 0;
  net::MemoryProbe probe = {};
};
// Of this process.
const MemoryOffer& OwnMemory();
std::string EncodeOffer(const MemoryOffer& offer);
[[nodiscard]] bool ReadOffer(net::BytesReader* reader, MemoryOffer* offer);

// Thread-safe.
class LentMemory {
 public:
  // An error if this process may not read it.
  static StatusOr<std::shared_ptr<const LentMemory>> Open(const MemoryOffer& offer);
  // Copies what the other process has at `from`. UNAVAILABLE if that process is gone.
  Status Read(uint64_t from, char* to, size_t size) const;

 private:
  explicit LentMemory(const MemoryOffer& offer) : offer_(offer) {}
  const MemoryOffer offer_;
};

}  // namespace millrace::collective
