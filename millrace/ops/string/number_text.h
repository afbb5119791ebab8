// Parsing of numbers, for StringToNumber and DecodeCSV.
#pragma once

#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace millrace {

// Hexadecimal floating-point numbers, with or without an exponent: "0x1.8p3".
template <typename T>
bool ParseHexFloat(absl::string_view text, T* value) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.size() < 3 || text[0] != '0' || (text[1] != 'x' && text[1] != 'X') || text[2] == '-') return false;
  text.remove_prefix(2);
  T magnitude = 0;
  const auto result = absl::from_chars(text.data(), text.data() + text.size(), magnitude, absl::chars_format::hex);
  if (result.ec == std::errc::invalid_argument || result.ptr != text.data() + text.size()) return false;
  *value = negative ? -magnitude : magnitude;
  return true;
}

// Surrounding white space is allowed, other text is not. Floating-point numbers that are too large become infinite;
// integers that do not fit are rejected.
template <typename T>
bool ParseNumber(absl::string_view text, T* value) {
  if constexpr (std::is_same_v<T, float>) {
    return absl::SimpleAtof(text, value) || ParseHexFloat(absl::StripAsciiWhitespace(text), value);
  } else if constexpr (std::is_same_v<T, double>) {
    return absl::SimpleAtod(text, value) || ParseHexFloat(absl::StripAsciiWhitespace(text), value);
  } else {
    return absl::SimpleAtoi(text, value);
  }
}

}  // namespace millrace
