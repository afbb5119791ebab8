// Reading a file in small bites.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

// Asks its file for large pieces and gives small ones. An error of the file comes after everything that was read
// before it. One thread at a time.
class BufferedInput {
 public:
  explicit BufferedInput(std::unique_ptr<SequentialFile> file, size_t buffer_size = size_t{256} << 10)
      : file_(std::move(file)), buffer_size_(buffer_size) {}

  // Appends up to `n` bytes and says how many; fewer only at the end. Memory grows with what is there, not with `n`.
  StatusOr<size_t> Read(uint64_t n, std::string* out);
  // Passes over up to `n` bytes and says how many.
  StatusOr<uint64_t> Skip(uint64_t n);
  // The next line without its end ("\n" or "\r\n"); false at the end of the file.
  StatusOr<bool> ReadLine(std::string* line);
  // How many bytes were taken.
  uint64_t offset() const { return offset_; }

 private:
  // Gets more when there is nothing left; nothing is left after that only at the end.
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
