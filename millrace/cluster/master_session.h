// A session as its master keeps it: the graph, where its nodes go, the programs of its signatures, its steps in flight.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/recent_ids.h"
#include "millrace/cluster/step_program.h"
#include "millrace/cluster/worker.h"
#include "millrace/graph/placement.h"
#include "millrace/proto/master.pb.h"
#include "millrace/session/partial_step.h"

namespace millrace {

class MasterStep;

// A task of the session with its devices.
struct SessionTask {
  const Peer* peer = nullptr;  // null: the master's own
  std::string name;
  std::vector<pb::DeviceAttributes> devices;
  bool speaks_millrace = false;
};

struct MasterSessionOptions {
  std::string handle = {};
  // Steps are counted up from here. Steps of all sessions meet on the workers, so no other session may be near.
  int64_t first_step_id = 1;
  pb::ConfigProto config = {};
  std::shared_ptr<Worker> worker = nullptr;
  std::shared_ptr<WorkerSession> worker_session = nullptr;
  std::shared_ptr<const PeerSet> peers = nullptr;
  std::vector<SessionTask> tasks = {};  // the master's own first
  TimerQueue* timers = TimerQueue::Real();
  // Called when a step that waits for peers begins.
  std::function<void()> on_remote_step = nullptr;
};

// A step in flight, for status pages.
struct RunningStep {
  int64_t step_id = 0;
  std::string session;
  absl::Time since;
  std::vector<std::string> waits_for;  // tasks that have not finished their part
};

// Thread-safe; behind a shared_ptr. Starts no threads.
class MasterSession : public std::enable_shared_from_this<MasterSession> {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(StatusOr<T>)>;
  using DoneStatus = absl::AnyInvocable<void(Status)>;

  explicit MasterSession(MasterSessionOptions options);
  ~MasterSession();

  const std::string& handle() const { return options_.handle; }
  const MasterSessionOptions& options() const { return options_; }

  // The first nodes: version 0.
  Status Begin(pb::GraphDef def);
  // Adds nodes and gives each a device. All or none are added. ABORTED when `version` is not the session's; returns the new one.
  StatusOr<int64_t> Extend(pb::GraphDef def, int64_t version);

  void RunStep(RunStepCall call, const CallControl& control, Done<RunStepAnswer> done);
  // Counted from 0.
  void MakeCallable(pb::CallableOptions options, const CallControl& control, Done<int64_t> done);
  void RunCallable(RunCallableCall call, const CallControl& control, Done<RunCallableAnswer> done);
  Status ReleaseCallable(int64_t handle);
  void PartialRunSetup(CallableSpec spec, const CallControl& control, Done<std::string> done);

  // Runs what was compiled before: no name is looked at.
  struct StepResult {
    std::vector<Tensor> fetches;
    pb::RunMetadata metadata;
  };
  // With `may_repeat` it may be run several times before it is done; only an error has to end it.
  void Run(std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds, const pb::RunOptions& options,
           const CallControl& control, Done<StepResult> done, bool may_repeat = false);
  // The program of a signature, compiled and registered at first use. The wait ends by `control`'s cancellation, after `limit` and
  // with the session; the program is there for others all the same.
  void Program(const CallableSpec& spec, const CallControl& control, Done<std::shared_ptr<const MasterProgram>> done,
               absl::Duration limit = absl::InfiniteDuration());

  pb::ListDevicesResponse ListDevices() const;
  // Ends the steps in flight with CANCELLED and calls `done` when they have ended; peers are told, not waited for.
  void Close(const Status& why, absl::AnyInvocable<void()> done);

  absl::Time opened() const { return opened_; }
  int64_t num_nodes() const { return num_nodes_.load(std::memory_order_relaxed); }
  const std::shared_ptr<SessionLease>& lease() const { return lease_; }
  // No step runs but partial ones, which wait for calls.
  bool IsIdle() const;
  bool ListAwaited(std::vector<Awaited>* peers) const;
  void OnPeerLost(const Awaited& peer, const Status& why);
  std::vector<RunningStep> ListRunning() const;
  const FinishCounter& steps_finished() const { return steps_finished_; }

 private:
  friend class MasterStep;
  using Programs = absl::flat_hash_map<std::string, std::shared_ptr<const MasterProgram>>;
  using Waiter = Done<std::shared_ptr<const MasterProgram>>;
  struct CallableEntry {
    std::shared_ptr<const MasterProgram> program;
    pb::RunOptions options;
  };
  struct PartialRun;

  // Null when there is none.
  std::shared_ptr<const MasterProgram> FindProgram(const std::string& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(programs_mu_);
  Status Place(Graph* graph) const;
  Status Add(pb::GraphDef def) ABSL_EXCLUSIVE_LOCKS_REQUIRED(graph_mu_);
  // Cuts the graph of a step and compiles the part at home; `parts` get the graphs to register with peers.
  StatusOr<std::shared_ptr<MasterProgram>> Build(std::unique_ptr<Graph> graph, const CallableSpec& spec,
                                                 std::vector<std::pair<int, pb::GraphDef>>* remote) const;
  void Register(std::shared_ptr<MasterProgram> program, std::vector<std::pair<int, pb::GraphDef>> remote,
                Done<std::shared_ptr<const MasterProgram>> done);
  // ABORTED for a request that has come before: the transport or the client sent it twice, and it must not run twice. 0 is no number.
  Status NoteRequest(int64_t request_id);
  void RunPartial(const std::shared_ptr<PartialRun>& partial, RunStepCall call, const CallControl& control, Done<RunStepAnswer> done);
  // Lets go of all and gives the steps, whose tensors may still be kept.
  std::vector<int64_t> TakePartialSteps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndPartial(const std::shared_ptr<PartialRun>& partial);
  void OnStepEnded(MasterStep* step);
  void CountFinished(absl::Time since, absl::Time now) {
    steps_finished_.Count(now, now - since);
    options_.worker->steps_finished().Count(now, now - since);
  }
  // Of the steps in flight those that are wanted, by number, so that a simulation gives the same events each time.
  std::vector<std::shared_ptr<MasterStep>> Ordered(absl::FunctionRef<bool(const MasterStep&)> wanted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  PassOptions Passes() const;
  const SessionTask* FindTask(absl::string_view name) const;

  const MasterSessionOptions options_;
  const absl::Time opened_;
  const std::shared_ptr<SessionLease> lease_ = std::make_shared<SessionLease>();
  FinishCounter steps_finished_;
  std::atomic<int64_t> num_nodes_{0};  // of graph_, whose lock may be held for long
  std::string home_device_;
  PlacementOptions placement_;
  PartitionOptions partition_;  // what all signatures have in common
  std::atomic<int64_t> next_step_id_;
  CancellationManager closing_;

  mutable Mutex graph_mu_;
  Graph graph_ ABSL_GUARDED_BY(graph_mu_);
  int64_t version_ ABSL_GUARDED_BY(graph_mu_) = 0;

  Mutex programs_mu_;
  Programs programs_ ABSL_GUARDED_BY(programs_mu_);
  absl::flat_hash_map<std::string, std::vector<Waiter>> compiling_ ABSL_GUARDED_BY(programs_mu_);

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  Status closed_because_ ABSL_GUARDED_BY(mu_);
  absl::AnyInvocable<void()> on_idle_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const MasterStep*, std::shared_ptr<MasterStep>> running_ ABSL_GUARDED_BY(mu_);
  RecentIds requests_ ABSL_GUARDED_BY(mu_);
  int64_t next_callable_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<int64_t, CallableEntry> callables_ ABSL_GUARDED_BY(mu_);
  int64_t next_partial_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<PartialRun>> partial_runs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
