// Characters of UTF-8 text: every byte except a continuation byte begins one, in malformed text too.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace millrace {

inline bool IsUtf8Continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

inline int64_t Utf8Length(absl::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += IsUtf8Continuation(c) ? 0 : 1;
  return n;
}

}  // namespace millrace
