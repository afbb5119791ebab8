// Waits for several asynchronous operations.
#pragma once

#include <atomic>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"

namespace millrace {

// Calls `done` once, after `count` arrivals, with the first error among them. Usually shared by the callbacks of the
// operations:
//
//   const auto all = std::make_shared<FanIn>(workers.size(), [](Status status) { ... });
//   for (auto& worker : workers) worker->Close([all](Status status) { all->Arrive(status); });
//
// Thread-safe. `done` runs on the thread of the last arrival, without locks, and sees everything written before each
// arrival. A function that still uses what `done` destroys, or that learns only gradually how many operations there
// are, counts itself as one more and arrives last.
class FanIn {
 public:
  using Done = absl::AnyInvocable<void(Status)>;

  // `count` is at least 1.
  FanIn(size_t count, Done done) : pending_(count), done_(std::move(done)) {}
  FanIn(const FanIn&) = delete;
  FanIn& operator=(const FanIn&) = delete;

  // Call it at most `count` times.
  void Arrive(const Status& status = absl::OkStatus());
  // Waits for `count` more arrivals. The caller must itself still have to arrive.
  void Add(size_t count) { pending_.fetch_add(count, std::memory_order_relaxed); }

  // Calls `done` with `why` at once, unless the wait is over; arrivals are then ignored.
  void Fail(Status why);
  // Ends the wait without calling `done`. Returns false if it is too late: `done` has been called or is about to be.
  [[nodiscard]] bool Cancel() { return !over_.exchange(true, std::memory_order_acq_rel); }

 private:
  std::atomic<size_t> pending_;
  std::atomic<bool> over_{false};
  std::atomic<bool> failed_{false};  // there is a first error
  Mutex mu_;
  Status first_error_ ABSL_GUARDED_BY(mu_);
  Done done_;  // taken by the thread that ended the wait
};

}  // namespace millrace
