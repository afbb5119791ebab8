// What runs with an identity have done to the state of a task, so that a repeated run does it once.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/runtime/run_identity.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class KernelContext;

struct RunRecordLimits {
  size_t clients = 4096;
  size_t runs_per_client = 64;
  // Of the records of one run, and of all runs, with the outputs that they keep alive.
  size_t bytes_per_run = size_t{1} << 30;
  size_t bytes = size_t{4} << 30;
};

// The bytes that all records of a task keep alive, with their limits.
struct RunRecordUsage {
  explicit RunRecordUsage(const RunRecordLimits& limits) : limits(limits) {}
  const RunRecordLimits limits;
  std::atomic<size_t> bytes{0};
};

// What one execution of a recorded node has given.
struct NodeOutcome {
  // Of the resources that were changed, when they were changed; see Resource::epoch.
  absl::InlinedVector<uint64_t, 2> epochs = {};
  absl::InlinedVector<Tensor, 1> outputs = {};

  size_t bytes() const;  // with its outputs
};

// The record of one run on one task. The kernels of the attempt that runs use it, from any thread.
class RunRecord {
 public:
  // One execution of a node in the current attempt. The nth one in an attempt corresponds to the nth one in the others.
  struct Execution {
    uint64_t node = 0;
    uint32_t index = 0;
    std::optional<NodeOutcome> earlier = std::nullopt;  // from an earlier attempt
  };
  // `node` identifies the node, frame and iteration (ExecutionKey).
  Execution Enter(uint64_t node);
  // Call it when the node has changed the state. An outcome that exceeds the limits is not kept: the node then runs
  // again in a later attempt, and the log says so.
  void Complete(const Execution& execution, NodeOutcome outcome);

  const RunIdentity& identity() const { return identity_; }

  explicit RunRecord(std::shared_ptr<RunRecordUsage> usage) : usage_(std::move(usage)) {}
  ~RunRecord();

 private:
  friend class RunRecords;
  struct Slot {
    uint32_t entered = 0;  // in this attempt
    absl::InlinedVector<std::optional<NodeOutcome>, 1> outcomes;
  };

  void StartAttempt(const RunIdentity& identity);

  const std::shared_ptr<RunRecordUsage> usage_;
  // Guarded by the RunRecords, and constant while an attempt runs.
  RunIdentity identity_;
  bool running_ = false;
  absl::AnyInvocable<void(Status)> next_;  // of the attempt that waits for the end of the running one
  RunIdentity next_identity_;

  Mutex mu_;
  absl::flat_hash_map<uint64_t, Slot> slots_ ABSL_GUARDED_BY(mu_);
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

// The records of the runs that may still be repeated, by client and number. Thread-safe. Runs without an identity do
// not use it.
//
// At most one attempt of a run is running on a task: a later one waits for the end of the earlier one. So an update and
// its record need not be atomic; no attempt can see the one without the other.
//
// Bounded: each run names the oldest one that its client may still repeat, and earlier ones are forgotten. Beyond the
// limits the client that was silent for longest is forgotten.
class RunRecords {
 public:
  explicit RunRecords(RunRecordLimits limits = {}) : usage_(std::make_shared<RunRecordUsage>(limits)) {}

  struct Attempt {
    std::shared_ptr<RunRecord> record;
    // An earlier attempt is running: cancel it, and wait for `ready`.
    bool waits = false;
  };
  // Begins an attempt. If it has to wait, `ready` is called when it may go on, on the thread that ends the earlier
  // attempt, or with an error if it must not any more: it was given up, or a later attempt has come. ABORTED if a later
  // attempt has come already, or if the client no longer waits for the run; RESOURCE_EXHAUSTED if the client may repeat
  // too many runs.
  StatusOr<Attempt> Begin(const RunIdentity& identity, absl::AnyInvocable<void(Status)> ready);
  // Ends an attempt that has begun and does not wait.
  void End(RunRecord& record);
  // Whether a later attempt waits for the end of the running one.
  bool IsAwaited(const RunRecord& record) const;
  // Ends the wait of an attempt with `why`, unless it has ended.
  void GiveUp(RunRecord& record, const RunIdentity& identity, const Status& why);

  // A client asks this task to repeat a run under the numbers from identity.number on. Returns the number to begin
  // with: if the client asked before, and does not know how far the task came, the number of the last repetition. A
  // client that then repeats by itself continues from there too: its numbers are shifted.
  int64_t BeginRepeating(const RunIdentity& identity);
  // Call it before each further repetition. ABORTED if the client has asked again, in a later attempt.
  Status GoOnRepeating(const RunIdentity& identity) const;

  // The number of recorded runs, and the bytes that they keep alive.
  size_t size() const;
  size_t bytes() const { return usage_->bytes.load(std::memory_order_relaxed); }

 private:
  using Dropped = std::vector<std::shared_ptr<RunRecord>>;
  struct Client {
    int64_t oldest = 0;
    int64_t last = 0;             // the latest run
    int64_t repeats_from = -1;    // the task chose the numbers from here to `last` itself
    int64_t repeats_attempt = 0;  // the latest attempt that asked for it
    int64_t shift = 0;            // added to the client's numbers
    std::map<int64_t, std::shared_ptr<RunRecord>> runs;
    std::list<uint64_t>::iterator turn;  // in by_use_
  };

  Client& Find(uint64_t client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is dropped is destroyed without the lock.
  static void Forget(Client& client, int64_t before, Dropped* dropped);
  void DropSilentClients(Dropped* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<RunRecordUsage> usage_;
  mutable Mutex mu_;
  absl::flat_hash_map<uint64_t, Client> clients_ ABSL_GUARDED_BY(mu_);
  std::list<uint64_t> by_use_ ABSL_GUARDED_BY(mu_);  // the latest first
};

// Identifies an execution of the node within its run: by the node's name, the function calls around it, the frame and
// the iteration.
uint64_t ExecutionKey(const KernelContext& ctx);

}  // namespace millrace
