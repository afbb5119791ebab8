// Messages sealed with a shared key (AES-256-GCM): nobody without the key can read them, or change them unnoticed.
//
// For two processes that have a secret in common but no certificates yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace::net {

inline constexpr size_t kSealKeySize = 32;

// From the system's random numbers. RESOURCE_EXHAUSTED if there are none.
StatusOr<std::string> RandomBytes(size_t count);
// A key of kSealKeySize bytes out of a secret of any length (HKDF with SHA-256). Other labels give unrelated keys.
StatusOr<std::string> DeriveSealKey(absl::string_view secret, absl::string_view label);

// A message by itself, with a random nonce.
StatusOr<std::string> SealMessage(absl::string_view key, absl::string_view message);
// PERMISSION_DENIED if it was not sealed with this key.
StatusOr<std::string> OpenMessage(absl::string_view key, absl::string_view sealed);

// One direction of a connection: records in order, none lost, repeated or swapped. A key must be used by one connection
// only, and by one sealer for each direction. Not thread-safe.
class RecordSealer {
 public:
  RecordSealer(std::string key, uint8_t direction) : key_(std::move(key)), direction_(direction) {}
  // The bytes to send; several records if `plain` is long.
  StatusOr<std::string> Seal(absl::string_view plain);

 private:
  const std::string key_;
  const uint8_t direction_;
  uint64_t next_ = 0;
};

class RecordOpener {
 public:
  RecordOpener(std::string key, uint8_t direction) : key_(std::move(key)), direction_(direction) {}
  // Adds received bytes, and appends to `plain` what they complete. PERMISSION_DENIED for bytes of somebody else's;
  // nothing can be opened afterwards.
  Status Open(absl::string_view bytes, std::string* plain);

 private:
  const std::string key_;
  const uint8_t direction_;
  uint64_t next_ = 0;
  std::string buffer_;
};

}  // namespace millrace::net
