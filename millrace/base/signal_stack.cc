#include "millrace/base/signal_stack.h"

#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cstddef>

namespace millrace {
namespace {

// For the handler; the kernel also stores all registers of the processor there.
constexpr size_t kForHandler = 64 << 10;

class SignalStack {
 public:
  SignalStack() {
    stack_t old = {};
    if (sigaltstack(nullptr, &old) != 0 || (old.ss_flags & SS_DISABLE) == 0) return;
    size_ = kForHandler + static_cast<size_t>(getauxval(AT_MINSIGSTKSZ));
    void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return;
    memory_ = memory;
    stack_t own = {};
    own.ss_sp = memory_;
    own.ss_size = size_;
    sigaltstack(&own, nullptr);
  }
  ~SignalStack() {
    if (memory_ == nullptr) return;
    stack_t now = {};
    // Somebody else may have set another one since.
    if (sigaltstack(nullptr, &now) == 0 && now.ss_sp == memory_) {
      stack_t none = {};
      none.ss_flags = SS_DISABLE;
      if (sigaltstack(&none, nullptr) != 0) return;
    }
    munmap(memory_, size_);
  }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

void HaveSignalStack() { static thread_local SignalStack stack; }

}  // namespace millrace
