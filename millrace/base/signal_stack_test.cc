#include "millrace/base/signal_stack.h"

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "gtest/gtest.h"

namespace millrace {
namespace {

std::atomic<uintptr_t> handler_at{0};

// Not the address of a variable, which asan may keep elsewhere.
extern "C" void NoteWhere(int) { handler_at = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }

TEST(SignalStack, AHandlerRunsThereAndNotWhereTheThreadIs) {
  struct sigaction action = {}, before = {};
  action.sa_handler = NoteWhere;
  action.sa_flags = SA_ONSTACK;
  ASSERT_EQ(sigaction(SIGUSR2, &action, &before), 0);
  std::thread thread([] {
    HaveSignalStack();
    HaveSignalStack();
    stack_t stack = {};
    ASSERT_EQ(sigaltstack(nullptr, &stack), 0);
    ASSERT_EQ(stack.ss_flags & SS_DISABLE, 0);
    pthread_kill(pthread_self(), SIGUSR2);  // has been handled when this returns
    EXPECT_GE(handler_at, reinterpret_cast<uintptr_t>(stack.ss_sp));
    EXPECT_LT(handler_at, reinterpret_cast<uintptr_t>(stack.ss_sp) + stack.ss_size);
  });
  thread.join();
  sigaction(SIGUSR2, &before, nullptr);
}

}  // namespace
}  // namespace millrace
