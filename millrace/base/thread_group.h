// Threads that come and go, and are all gone with their group.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"

namespace millrace {

// Thread-safe. For loops that need threads of their own, as many as there is use for; closures that merely must
// run somewhere go to a Scheduler.
class ThreadGroup {
 public:
  explicit ThreadGroup(std::string name);
  // Waits until every thread has returned. Not from one of them.
  ~ThreadGroup();

  // Runs `body` on a new thread. False when the system gives no more threads.
  [[nodiscard]] bool Start(absl::AnyInvocable<void()> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs `body` on a new thread that nobody waits for: what it uses lives as long as the process, or until it says that it is
// done. False when the system gives no more threads.
[[nodiscard]] bool StartDetachedThread(const std::string& name, absl::AnyInvocable<void()> body);

}  // namespace millrace
