// A file descriptor with an owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace millrace {

// Closes its descriptor when it goes. For descriptors of which nobody asks whether closing them went well: a file that is written
// says that only then (see file.h). Not thread-safe. Where there is no descriptor nothing is called, so that errno is still
// that of the call that gave none: `Fd fd(open(...)); if (!fd.ok()) return Error(errno);`
class Fd {
 public:
  Fd() = default;
  // Takes it over; negative: none.
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  // Closes what it had.
  Fd& operator=(Fd&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { Reset(); }

  // -1 where there is none.
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  // Closes it now.
  void Reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace millrace
