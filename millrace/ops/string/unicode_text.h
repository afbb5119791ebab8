// Unicode code points of text in any encoding that ICU knows.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// What to do about malformed input: the attributes that the Unicode ops share.
struct MalformedPolicy {
  // Reads "errors", "replacement_char" and, where the op has it, "replace_control_characters".
  explicit MalformedPolicy(KernelInit& init);

  bool strict = false;  // an error
  bool ignore = false;  // left out; otherwise replaced by `replacement`
  bool replace_control = false;
  int32_t replacement = 0xFFFD;
};

// Calls each(code point, number of bytes, malformed) for the characters of `text`. A malformed sequence counts as one
// character, U+FFFD. INVALID_ARGUMENT if there is no such encoding or `text` is too long.
Status ForEachCodePoint(absl::string_view text, const std::string& encoding,
                        absl::FunctionRef<void(int32_t, int64_t, bool)> each);

// INVALID_ARGUMENT if there is no such encoding.
Status CheckInputEncoding(const std::string& encoding);

// Not a surrogate, and within Unicode's range.
inline bool IsEncodable(int32_t c) { return c >= 0 && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF); }

// Encodings that are written.
enum class OutputEncoding { kUtf8, kUtf16Be, kUtf32Be };
OutputEncoding OutputEncodingAttr(KernelInit& init);
// Appends one character, which IsEncodable.
void AppendCodePoint(int32_t c, OutputEncoding encoding, std::string* text);

}  // namespace millrace
