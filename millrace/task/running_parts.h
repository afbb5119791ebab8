// The parts that run on a task: the list of them, the state that runs reuse, and how all of them are ended.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/executor/step_arena.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/step_resources.h"
#include "millrace/task/run_attempt.h"

namespace millrace {

class Task;
class TaskSession;

// A running part, for status reports.
struct RunningPart {
  int64_t step_id = 0;
  std::string session;
  absl::Time since;
};

// The state of one run of a part. Later runs reuse it, so the steady state allocates nothing.
struct ActivePart {
  // Its memory is charged to `budget`.
  explicit ActivePart(RefPtr<MemoryBudget> budget) : arena(MakeRef<StepArena>(std::move(budget))) {}

  // Set by Enter, for List.
  int64_t step_id = 0;
  const TaskSession* session = nullptr;
  absl::Time since;
  CancellationManager* cancellation = nullptr;  // the step's, kept alive by `owner`; or `own_cancellation`
  std::shared_ptr<void> owner;
  std::optional<CancellationManager> own_cancellation;

  // Used by the run itself.
  StepContext step;
  std::optional<StepResources> step_resources;
  const RefPtr<StepArena> arena;  // of its session
  absl::AnyInvocable<void(Status)> done;
  RunAttempt attempt;          // empty if the run has no identity
  std::shared_ptr<Task> task;  // keeps the task alive during an asynchronous run

  // Guarded by the RunningParts.
  const RunRecord* run = nullptr;  // of `attempt`
  int pins = 0;                    // the number of threads that are cancelling it
  bool left = false;
  ActivePart* next = nullptr;
  ActivePart* previous = nullptr;
};

// Thread-safe. A run takes one lock when it begins and one when it ends.
class RunningParts {
 public:
  struct Entry {
    int64_t step_id = 0;                   // 0: assigned here
    const TaskSession* session = nullptr;  // must outlive the run
    absl::Time since = absl::InfinitePast();
    CancellationManager* cancellation = nullptr;  // null: the run gets one of its own
    std::shared_ptr<void> owner = nullptr;        // keeps `cancellation` alive
  };

  RunningParts() = default;
  ~RunningParts();

  // Adds a run. After Close, returns the status `refused`.
  StatusOr<ActivePart*> Enter(Entry entry);
  // Removes a run from the list; the caller must not use `part` afterwards. The run counts as running until Ended,
  // which is not called if `ended`.
  void Leave(ActivePart* part, bool ended);
  // Call it when the run's `done` has returned.
  void Ended();

  // Notes that the run is an attempt of a run that can be cancelled by CancelRun.
  void SetRun(ActivePart* part, const RunRecord* run);
  // Cancels the attempts of a run.
  void CancelRun(const RunRecord& run, const Status& why);
  // Cancels the parts of a step.
  void CancelStep(int64_t step_id, const Status& why);

  // Refuses later runs with `refused` and cancels running ones with `cancelled`. Calls `idle` when none is left, on the
  // thread that ended the last one. May be called repeatedly: the first call's statuses count, and every `idle` is
  // called.
  void Close(const Status& refused, const Status& cancelled, absl::AnyInvocable<void()> idle);

  // OK until Close.
  Status status() const;
  std::vector<RunningPart> List() const;
  bool empty() const;

 private:
  void CancelThose(absl::FunctionRef<bool(const ActivePart& part)> wanted, const Status& why);
  // Cancels runs that have been pinned.
  void CancelPinned(const std::vector<ActivePart*>& pinned, const Status& why);
  // Keeps `part` for a later run of its session. If enough are kept already, returns it, to be deleted without the
  // lock.
  std::unique_ptr<ActivePart> Recycle(ActivePart* part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Moves the callbacks to `on_idle` if no run is left.
  void TakeIfIdle(std::vector<absl::AnyInvocable<void()>>* on_idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Runs that have left and whose Ended was not called yet. Ended writes it and then reads `closed_`, Close the other
  // way round, so that one of them sees the other; only a run that ends after Close takes the lock for that.
  std::atomic<int> ending_{0};
  std::atomic<bool> closed_{false};
  mutable Mutex mu_;
  Status refused_ ABSL_GUARDED_BY(mu_);
  int64_t next_step_id_ ABSL_GUARDED_BY(mu_) = 1;
  ActivePart* first_ ABSL_GUARDED_BY(mu_) = nullptr;  // the listed runs
  std::vector<absl::AnyInvocable<void()>> on_idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
