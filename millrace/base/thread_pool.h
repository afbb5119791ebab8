// Schedulers and thread pools. Pools are injected; only base/ starts threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

namespace millrace {

// Runs closures asynchronously, on an unspecified thread. Thread-safe.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void Schedule(absl::AnyInvocable<void()> closure) = 0;
  virtual int num_threads() const = 0;

  // Runs each closure immediately on the calling thread.
  static Scheduler* Inline();
};

// A fixed number of threads. Idle threads spin briefly and then block, since several tasks may share the machine. The
// destructor runs all scheduled closures and joins the threads. A closure that throws is logged and destroyed.
class ThreadPool : public Scheduler {
 public:
  ThreadPool(std::string name, int num_threads);
  ~ThreadPool() override;

  void Schedule(absl::AnyInvocable<void()> closure) override;
  int num_threads() const override;

  // Calls body(begin, end) over [0, total) in pieces of `grain`, on the pool's threads and the caller's, and returns
  // when all are done. The pieces depend only on total and grain, never on the number of threads, so results are the
  // same on every machine. May be called from inside a piece; such a nested call may run on a single thread.
  // The wait for the last pieces does not hand over the thread's other duties: KernelContext::ParallelFor does so
  // before long work, and the backstop (EventThread) bounds what is left. If a piece throws, no further piece begins,
  // and the first exception is thrown here when all that had begun have ended.
  void ParallelFor(int64_t total, int64_t grain, absl::FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
