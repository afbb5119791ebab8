// Splits a byte stream into lines.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace millrace::launch {

// Buffers an unfinished line until its end arrives. A line longer than `limit` is delivered in pieces, so memory is
// bounded.
class StreamLines {
 public:
  using OnLine = std::function<void(absl::string_view line)>;  // without its newline

  explicit StreamLines(size_t limit = 16 << 10) : limit_(limit) {}
  void Add(absl::string_view bytes, const OnLine& on_line);
  // Delivers the unfinished line, if there is one.
  void Flush(const OnLine& on_line);

 private:
  size_t limit_;
  std::string partial_;
};

// The line as a terminal can show it without the cursor leaving the line: the part after the last carriage return,
// without control characters other than tabs and colours, and with colours reset at its end.
std::string ForTerminal(absl::string_view line);

}  // namespace millrace::launch
