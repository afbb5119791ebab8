// The memory of late devices: protected but for the time in which their work is done.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "millrace/base/mutex.h"

namespace millrace::late {

// Thread-safe; never destroyed.
class LateMemory {
 public:
  static LateMemory& Global();

  // Null if there is no more. Aligned to 256 bytes; what is in it is undefined.
  void* Allocate(size_t bytes);
  // Overwrites the memory. Call it while a Window is open.
  void Free(void* data, size_t bytes);
  bool Owns(const void* data) const { return data >= base_ && data < base_ + kReserved; }

  // While one exists, all memory may be read and written.
  class Window {
   public:
    Window() { Global().Open(); }
    ~Window() { Global().Close(); }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
  };

 private:
  static constexpr size_t kReserved = size_t{16} << 30;
  static constexpr int kSmallest = 8;  // 256 bytes
  static constexpr int kClasses = 28;

  LateMemory();
  static int ClassOf(size_t bytes);
  void Open();
  void Close();
  void Protect(int protection, size_t from, size_t to);

  char* base_;
  Mutex mu_;
  int windows_ ABSL_GUARDED_BY(mu_) = 0;
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;  // bytes from base_ that have ever been given out, in whole pages
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;  // where the next new block begins
  std::array<std::vector<void*>, kClasses> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::late
