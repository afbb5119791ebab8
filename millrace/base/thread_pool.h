// Where closures run. Pools are injected; only base/ starts threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

namespace millrace {

// Runs closures, some time, on some thread. Thread-safe.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void Schedule(absl::AnyInvocable<void()> closure) = 0;
  virtual int num_threads() const = 0;

  // Runs everything on the thread that asks, at once.
  static Scheduler* Inline();
};

// A fixed number of threads. Idle threads block after a brief spin, since several tasks may
// share the machine. The destructor runs what was scheduled and joins.
class ThreadPool : public Scheduler {
 public:
  ThreadPool(std::string name, int num_threads);
  ~ThreadPool() override;

  void Schedule(absl::AnyInvocable<void()> closure) override;
  int num_threads() const override;

  // Calls body(begin, end) over [0, total) in pieces of `grain`, the caller's thread working
  // too, and returns when all are done. The pieces depend on total and grain alone, never on
  // the number of threads, so that what a piece computes is the same on every machine.
  // Safe to call from inside a piece; an inner call may run on one thread.
  void ParallelFor(int64_t total, int64_t grain,
                   absl::FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
