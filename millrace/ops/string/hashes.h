// String hashes with fixed values: models depend on them, so they must never change.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace millrace {

// FarmHash's 64-bit fingerprint.
uint64_t FarmFingerprint64(absl::string_view text);

// MurmurHash64A.
uint64_t MurmurHash64(absl::string_view text, uint64_t seed);

// SipHash-2-4 with a 128-bit key.
uint64_t SipHash(uint64_t key0, uint64_t key1, absl::string_view text);

}  // namespace millrace
