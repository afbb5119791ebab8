// The steps that a task knows, each with its rendezvous on this task.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/step/step_rendezvous.h"
#include "millrace/cluster/worker/recent_ids.h"
#include "millrace/cluster/worker/worker_interface.h"

namespace millrace {

struct StepTableOptions {
  std::string task = {};  // used in messages
  std::shared_ptr<WaitRegistry> waits = nullptr;
  Clock* clock = Clock::Real();
};

// The first message of a step adds it, even if that is another task's request for a tensor. A step is forgotten when
// its master says so, when it succeeded and its tensors were taken, or after a long time without activity. Thread-safe.
// Held by shared_ptr.
class StepTable : public std::enable_shared_from_this<StepTable> {
 public:
  explicit StepTable(StepTableOptions options);

  // The rendezvous of a step, created on first use. For a step that has ended, returns an aborted one.
  RefPtr<StepRendezvous> Find(int64_t step_id) { return Find(step_id, /*keep=*/false, 0); }
  // The same, but the step is kept until Forget.
  RefPtr<StepRendezvous> Keep(int64_t step_id) { return Find(step_id, /*keep=*/true, 0); }
  // Ends the step: fails the waits for its tensors. Late messages do not create it again.
  void Forget(int64_t step_id);
  // Forgets all steps of a session.
  void ForgetSession(const std::string& session, const Status& why);

  // A part of the step begins to run here, for `session` (empty for a caller that did not create one); returns the
  // step's rendezvous. ALREADY_EXISTS if the step is running, has run here or was given up.
  StatusOr<RefPtr<StepRendezvous>> BeginRun(int64_t step_id, const std::string& session);
  // The part has run. Forgets the step if no tensor is left for other tasks.
  void NoteRan(int64_t step_id, const StepRendezvous& rendezvous, bool went_well);

  // Returns tensors of a step that are produced here to another task, once all of them exist. A cancellation through
  // `control` ends only that caller's wait.
  void Recv(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys,
            WorkerInterface::Done<std::vector<RendezvousItem>> done);

  // Ends all current and later steps with `why`.
  void Shutdown(const Status& why);
  // Forgets all steps and fails their waits.
  void Clear();

  // Sorted by id, as is Rendezvous(), so that simulations are deterministic.
  std::vector<int64_t> List() const;
  std::vector<RefPtr<StepRendezvous>> Rendezvous() const;

 private:
  struct Step {
    RefPtr<StepRendezvous> rendezvous;
    std::string session;  // empty until the step runs here; "legacy" for a caller that did not create one
    absl::Time touched;   // the time of its last message
    int receivers = 0;    // the number of other tasks that wait for its tensors
    bool running = false;
    bool kept = false;       // kept until Forget, by the master of this task
    bool went_well = false;  // ran successfully, so it may be forgotten once its tensors are taken
  };

  RefPtr<StepRendezvous> Find(int64_t step_id, bool keep, int new_receivers);
  // The step, created if it is not known. `fresh` is its rendezvous if it is created: it is made without the lock, as
  // nearly every step is.
  Step& FindOrAdd(int64_t step_id, RefPtr<StepRendezvous> fresh, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the step if it succeeded and this was its last tensor, or if it has not begun here and nobody waits for it
  // any more.
  void OnReceiverGone(int64_t step_id, const StepRendezvous* rendezvous, bool gave_up);
  // Moves the steps that nobody has mentioned for long to `stale`. Their end calls those who still wait, so the caller
  // lets go of them without the lock.
  void TakeStale(absl::Time now, std::vector<RefPtr<StepRendezvous>>* stale) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const StepTableOptions options_;
  mutable Mutex mu_;
  Status going_down_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<int64_t, Step> steps_ ABSL_GUARDED_BY(mu_);
  RecentIds ended_ ABSL_GUARDED_BY(mu_);
  absl::Time last_sweep_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
