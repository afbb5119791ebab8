// An owned file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace millrace {

// Closes its descriptor on destruction and ignores close's result; a file being written reports errors on close, so use
// file.h for that. Not thread-safe. Constructing and destroying an empty Fd makes no system call, so errno of the
// failed call survives: `Fd fd(open(...)); if (!fd.ok()) return Error(errno);`
class Fd {
 public:
  Fd() = default;
  // Takes ownership; a negative value means no descriptor.
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  // Closes the descriptor that it held.
  Fd& operator=(Fd&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { Reset(); }

  // -1 if empty.
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  // The caller closes it from now on.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  // Closes it now.
  void Reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace millrace
