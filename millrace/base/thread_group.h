// A dynamic group of threads that are joined together.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"

namespace millrace {

// Thread-safe. For loops that each need a thread of their own; closures that can run on any thread belong on a
// Scheduler.
class ThreadGroup {
 public:
  explicit ThreadGroup(std::string name);
  // Joins every thread. Must not run on one of them.
  ~ThreadGroup();

  // Runs `body` on a new thread. Returns false if the system cannot create one.
  [[nodiscard]] bool Start(absl::AnyInvocable<void()> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs `body` on a new thread that is never joined: whatever it uses must live until the process ends, or until `body`
// signals that it is done. Returns false if the system cannot create a thread.
[[nodiscard]] bool StartDetachedThread(const std::string& name, absl::AnyInvocable<void()> body);

}  // namespace millrace
