// Buffered reading of a sequential file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

// Reads its file in large pieces and returns small ones. An error of the file is reported only after everything read
// before it has been consumed. Not thread-safe.
class BufferedInput {
 public:
  explicit BufferedInput(std::unique_ptr<SequentialFile> file, size_t buffer_size = size_t{256} << 10)
      : file_(std::move(file)), buffer_size_(buffer_size) {}

  // Appends up to `n` bytes to `out` and returns how many; fewer only at the end of the file. Memory use is bounded by
  // the file's content, not by `n`.
  StatusOr<size_t> Read(uint64_t n, std::string* out);
  // Skips up to `n` bytes and returns how many.
  StatusOr<uint64_t> Skip(uint64_t n);
  // Reads the next line, without its "\n" or "\r\n"; returns false at the end of the file.
  StatusOr<bool> ReadLine(std::string* line);
  // The number of bytes consumed.
  uint64_t offset() const { return offset_; }

 private:
  // Refills an empty buffer; it stays empty only at the end of the file.
  Status Fill();
  void Take(size_t n) {
    rest_.remove_prefix(n);
    offset_ += n;
  }

  std::unique_ptr<SequentialFile> file_;
  const size_t buffer_size_;
  std::string buffer_;
  absl::string_view rest_;
  uint64_t offset_ = 0;
};

}  // namespace millrace
