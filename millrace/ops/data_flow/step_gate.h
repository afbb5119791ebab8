// Bounded staleness: a worker waits when it is too far ahead of the slowest one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/blocked_ops.h"

namespace millrace {

// Counts the steps that each of a fixed number of workers has finished. A worker passes, which is to begin its next step, once everybody who takes part
// has finished at least as many steps as it has, less the staleness: with 0 they go in step. All take part from the beginning; one that left, or was
// silent for longer than its lease, is not waited for until it joins again. Thread-safe.
class StepGate : public Resource {
 public:
  static constexpr char kTypeName[] = "millrace::StepGate";

  struct Options {
    std::string name;
    int64_t num_workers = 1;
    int64_t staleness = 0;  // negative: nobody waits
    Clock* clock = Clock::Real();
  };
  using PassDone = absl::AnyInvocable<void(StatusOr<int64_t>)>;

  explicit StepGate(Options options);
  const Options& options() const { return options_; }

  // `worker` has finished one more step. Calls `done` with the number of its steps once it may begin another. One that had been given up takes part again.
  void Pass(const CallingOp& op, int64_t worker, PassDone done);
  // A worker begins, or begins again after its process was lost: it counts as having finished as many steps as the slowest of the others. Returns that.
  StatusOr<int64_t> Join(const CallingOp& op, int64_t worker);
  // It has ended: nobody waits for it any more.
  Status Leave(const CallingOp& op, int64_t worker);
  // `worker` is alive; those of whom nothing was heard for `lease` are given up. Returns for each whether it takes part.
  StatusOr<std::vector<bool>> KeepAlive(const CallingOp& op, int64_t worker, absl::Duration lease);

  // The steps that each has finished; -1 for one that takes no part.
  std::vector<int64_t> steps() const;
  std::string DebugString() const override;

 private:
  struct Member {
    int64_t steps = 0;
    bool takes_part = true;
    absl::Time heard_of;
  };

  Status Check(int64_t worker) const;
  // Of those who take part; -1 when nobody does.
  int64_t Slowest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t JoinLocked(int64_t worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayPass(int64_t steps) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whom a worker with so many steps waits for, for the list of waits.
  void DescribePass(int64_t steps, Wait* wait) const;
  void Cancel(int64_t id);

  const Options options_;
  mutable Mutex mu_;
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);
  WaitingLine passes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
