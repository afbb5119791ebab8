// The master's side of a session: the graph, the placement of its nodes, the programs of its signatures, the steps in
// flight.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/master/ended_steps.h"
#include "millrace/cluster/master/master_program.h"
#include "millrace/cluster/master/program_builder.h"
#include "millrace/cluster/master/program_table.h"
#include "millrace/cluster/worker/recent_ids.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/proto/master.pb.h"
#include "millrace/task/partial_run_table.h"
#include "millrace/task/partial_step_calls.h"

namespace millrace {

class MasterStep;

struct MasterSessionOptions {
  std::string handle = {};
  // Step ids count up from here. Workers distinguish the steps of all sessions by id, so the ranges of two sessions
  // must not overlap.
  int64_t first_step_id = 1;
  pb::ConfigProto config = {};
  std::shared_ptr<Worker> worker = nullptr;
  std::shared_ptr<WorkerSession> worker_session = nullptr;
  std::shared_ptr<const PeerSet> peers = nullptr;
  std::vector<SessionTask> tasks = {};  // the master's own task first
  TimerQueue* timers = TimerQueue::Real();
  std::shared_ptr<EndedSteps> ended_steps = nullptr;  // of the master
  // Called when a step that waits for peers begins.
  std::function<void()> on_remote_step = nullptr;
};

// A step in flight, for status reports.
struct RunningStep {
  int64_t step_id = 0;
  std::string session;
  absl::Time since;
  std::vector<std::string> waits_for;  // tasks that have not finished their part
};

// Thread-safe. Held by shared_ptr. Starts no threads.
class MasterSession : public std::enable_shared_from_this<MasterSession> {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(StatusOr<T>)>;
  using DoneStatus = absl::AnyInvocable<void(Status)>;

  explicit MasterSession(MasterSessionOptions options);
  ~MasterSession();

  const std::string& handle() const { return options_.handle; }
  const MasterSessionOptions& options() const { return options_; }

  // Sets the initial graph, which has version 0.
  Status Begin(pb::GraphDef def);
  // Adds nodes, all or none, and places them. Returns the new version; ABORTED if `version` is not the current one.
  StatusOr<int64_t> Extend(pb::GraphDef def, int64_t version);

  void RunStep(RunStepCall call, const CallControl& control, Done<RunStepAnswer> done);
  // Returns the callable's handle; handles count from 0.
  void MakeCallable(pb::CallableOptions options, const CallControl& control, Done<int64_t> done);
  void RunCallable(RunCallableCall call, const CallControl& control, Done<RunCallableAnswer> done);
  Status ReleaseCallable(int64_t handle);
  void PartialRunSetup(CallableSpec spec, const CallControl& control, Done<std::string> done);

  // The result of Run.
  struct StepResult {
    std::vector<Tensor> fetches;
    pb::RunMetadata metadata;
  };
  // Runs a compiled program, without looking up names. With `may_repeat`, the step may be run any number of times
  // before `done` is called, as for Callable::Repeat.
  void Run(std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds, const pb::RunOptions& options,
           const CallControl& control, Done<StepResult> done, bool may_repeat = false);
  // The program of a signature, compiled and registered on first use. The wait for it ends with `control`'s
  // cancellation, after `limit`, or with the session; the compilation continues for other callers.
  void Program(const CallableSpec& spec, const CallControl& control, Done<std::shared_ptr<const MasterProgram>> done,
               absl::Duration limit = absl::InfiniteDuration());

  pb::ListDevicesResponse ListDevices() const;
  // Ends the steps in flight with CANCELLED and calls `done` when they have ended. Peers are notified but not waited
  // for.
  void Close(const Status& why, absl::AnyInvocable<void()> done);

  absl::Time opened() const { return opened_; }
  int64_t num_nodes() const { return num_nodes_.load(std::memory_order_relaxed); }
  const std::shared_ptr<SessionLease>& lease() const { return lease_; }
  // True if no step is running, except for partial runs, which wait for their next call.
  bool IsIdle() const;
  bool ListPeers(std::vector<Awaited>* peers) const;
  void OnPeerLost(const Awaited& peer, const Status& why);
  std::vector<RunningStep> ListRunning() const;
  const FinishCounter& steps_finished() const { return steps_finished_; }

 private:
  friend class MasterStep;
  struct CallableEntry {
    std::shared_ptr<const MasterProgram> program;
    pb::RunOptions options;
  };
  struct PartialRun;

  // Runs a compiled program as the step `step_id`.
  void RunAs(int64_t step_id, std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds,
             const pb::RunOptions& options, const CallControl& control, Done<StepResult> done, bool may_repeat,
             int64_t collective_step = 0);
  Status Add(pb::GraphDef def) ABSL_EXCLUSIVE_LOCKS_REQUIRED(graph_mu_);
  // Records a request id. ABORTED for a duplicate, which the transport or the client sent twice and which must not run
  // twice. 0 means no id.
  Status NoteRequest(int64_t request_id);
  void RunPartial(const std::shared_ptr<PartialRun>& partial, RunStepCall call, const CallControl& control,
                  Done<RunStepAnswer> done);
  StatusOr<std::string> StartPartial(std::unique_ptr<PartialStepCalls> calls,
                                     std::shared_ptr<const MasterProgram> program);
  void EndPartial(const std::string& handle, const PartialRun& partial);
  void OnStepEnded(MasterStep* step);
  void CountFinished(absl::Time since, absl::Time now) {
    steps_finished_.Count(now, now - since);
    options_.worker->steps_finished().Count(now, now - since);
  }
  // The steps in flight for which `wanted` is true, sorted by id, so that simulations are deterministic.
  std::vector<std::shared_ptr<MasterStep>> Ordered(absl::FunctionRef<bool(const MasterStep&)> wanted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const MasterSessionOptions options_;
  const absl::Time opened_;
  const std::shared_ptr<SessionLease> lease_ = std::make_shared<SessionLease>();
  FinishCounter steps_finished_;
  std::atomic<int64_t> num_nodes_{0};  // of graph_; separate because graph_mu_ may be held for long
  const std::shared_ptr<const ProgramBuilder> builder_;
  const std::shared_ptr<ProgramTable> programs_;
  std::atomic<int64_t> next_step_id_;

  mutable Mutex graph_mu_;
  Graph graph_ ABSL_GUARDED_BY(graph_mu_);
  int64_t version_ ABSL_GUARDED_BY(graph_mu_) = 0;

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  Status closed_because_ ABSL_GUARDED_BY(mu_);
  absl::AnyInvocable<void()> on_idle_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const MasterStep*, std::shared_ptr<MasterStep>> running_ ABSL_GUARDED_BY(mu_);
  RecentIds requests_ ABSL_GUARDED_BY(mu_);
  int64_t next_callable_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<int64_t, CallableEntry> callables_ ABSL_GUARDED_BY(mu_);
  // None is added once the session is closed; its lock is acquired after mu_.
  PartialRunTable<PartialRun> partial_runs_;
};

}  // namespace millrace
