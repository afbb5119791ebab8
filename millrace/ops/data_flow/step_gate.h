// Bounded staleness: a worker waits if it is too far ahead of the slowest one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/blocked_ops.h"

namespace millrace {

// Counts the steps that each of a fixed number of workers has finished. A worker may begin its next step once every
// active worker has finished at least as many steps as it has, minus the staleness; with a staleness of 0 they run in
// lockstep. All workers are active initially; one that left, or whose lease expired, is inactive until it joins again.
// Thread-safe.
class StepGate : public Resource {
 public:
  static constexpr char kTypeName[] = "millrace::StepGate";

  struct Options {
    std::string name;
    int64_t num_workers = 1;
    int64_t staleness = 0;  // negative means that no worker ever waits
    Clock* clock = Clock::Real();
  };
  using PassDone = absl::AnyInvocable<void(StatusOr<int64_t>)>;

  explicit StepGate(Options options);
  const Options& options() const { return options_; }

  // Records that `worker` has finished a step. Calls `done` with the number of its steps once it may begin another. An
  // expired worker becomes active again.
  void Pass(const CallingOp& op, int64_t worker, PassDone done);
  // Adds a worker that starts, or restarts after its process was lost. Its step count is set to that of the slowest
  // other worker and returned.
  StatusOr<int64_t> Join(const CallingOp& op, int64_t worker);
  // Removes a worker that has finished; the others no longer wait for it.
  Status Leave(const CallingOp& op, int64_t worker);
  // Renews the lease of `worker`, and deactivates workers that were not heard of for `lease`. Returns for each worker
  // whether it is active.
  StatusOr<std::vector<bool>> KeepAlive(const CallingOp& op, int64_t worker, absl::Duration lease);

  // The number of steps that each worker has finished; -1 if it is inactive.
  std::vector<int64_t> steps() const;
  std::string DebugString() const override;

 private:
  struct Member {
    int64_t steps = 0;
    bool takes_part = true;
    absl::Time heard_of;
  };

  Status Check(int64_t worker) const;
  // The lowest step count of the active workers; -1 if there are none.
  int64_t Slowest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t JoinLocked(int64_t worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayPass(int64_t steps) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Describes, for the list of waits, which worker one with `steps` steps waits for.
  void DescribePass(int64_t steps, Wait* wait) const;
  void Cancel(int64_t id);

  const Options options_;
  mutable Mutex mu_;
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);
  WaitingLine passes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
