// The end of a task's output, for those who look at it later.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace millrace::launch {

// Keeps the last lines, up to a number of bytes. Not thread-safe.
class OutputTail {
 public:
  explicit OutputTail(size_t limit = 16 << 10) : limit_(limit) {}

  // `line` has no newline at its end; of a line longer than the limit, the end is kept.
  void Add(absl::string_view line);
  // Whole lines, each with its newline; no more than `most` bytes.
  std::string Text(size_t most = std::string::npos) const;

 private:
  size_t limit_;
  std::string text_;  // up to twice the limit, so that its front is erased rarely
};

}  // namespace millrace::launch
