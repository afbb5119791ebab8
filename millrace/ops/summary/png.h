// In-memory PNG encoding.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "millrace/base/status.h"

namespace millrace {

// `pixels`: rows of height x width x channels bytes; 1 channel is grey, 3 are RGB, 4 RGBA.
StatusOr<std::string> EncodePng(absl::Span<const uint8_t> pixels, int64_t height, int64_t width, int channels);

}  // namespace millrace
