// Lines out of a stream of bytes.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace millrace::launch {

// Holds an unfinished line until its end comes. A line longer than `limit` is given in pieces, so memory is bounded.
class StreamLines {
 public:
  using OnLine = std::function<void(absl::string_view line)>;  // without its newline

  explicit StreamLines(size_t limit = 16 << 10) : limit_(limit) {}
  void Add(absl::string_view bytes, const OnLine& on_line);
  // The unfinished line, if there is one.
  void Flush(const OnLine& on_line);

 private:
  size_t limit_;
  std::string partial_;
};

// What a terminal can show in one line without the cursor leaving it: after the last carriage return, no control characters but tabs and colours, which
// are ended.
std::string ForTerminal(absl::string_view line);

}  // namespace millrace::launch
