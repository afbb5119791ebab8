// Floating-point numbers as text that parses back to the same value.
#pragma once

#include <cstdlib>
#include <string>

#include "absl/strings/str_format.h"

namespace millrace {

// The shorter of two precisions (6 or 9 digits; 15 or 17) that round-trips.
inline std::string FloatText(float v) {
  if (v != v) return "nan";
  std::string text = absl::StrFormat("%.6g", v);
  return std::strtof(text.c_str(), nullptr) == v ? text : absl::StrFormat("%.9g", v);
}
inline std::string DoubleText(double v) {
  if (v != v) return "nan";
  std::string text = absl::StrFormat("%.15g", v);
  return std::strtod(text.c_str(), nullptr) == v ? text : absl::StrFormat("%.17g", v);
}

}  // namespace millrace
