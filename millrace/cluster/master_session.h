// A session as its master keeps it: the graph, where its nodes go, the programs of its signatures, its steps in flight.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
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
  void Run(std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds, const pb::RunOptions& options,
           const CallControl& control, Done<StepResult> done);
  // The program of a signature, compiled and registered at first use.
  void Program(const CallableSpec& spec, const CallControl& control, Done<std::shared_ptr<const MasterProgram>> done);

  pb::ListDevicesResponse ListDevices() const;
  // Ends the steps in flight with CANCELLED and calls `done` when they have ended; peers are told, not waited for.
  void Close(const Status& why, absl::AnyInvocable<void()> done);

  bool ListAwaited(std::vector<Awaited>* peers) const;
  void OnPeerLost(const Awaited& peer, const Status& why);
  std::vector<RunningStep> ListRunning() const;

 private:
  friend class MasterStep;
  using Programs = absl::flat_hash_map<std::string, std::shared_ptr<const MasterProgram>>;
  using Waiter = Done<std::shared_ptr<const MasterProgram>>;
  struct CallableEntry {
    std::shared_ptr<const MasterProgram> program;
    pb::RunOptions options;
  };
  struct PartialRun;

  Status Place(Graph* graph) const;
  Status Add(pb::GraphDef def) ABSL_EXCLUSIVE_LOCKS_REQUIRED(graph_mu_);
  // Cuts the graph of a step and compiles the part at home; `parts` get the graphs to register with peers.
  StatusOr<std::shared_ptr<MasterProgram>> Build(std::unique_ptr<Graph> graph, const CallableSpec& spec,
                                                 std::vector<std::pair<int, pb::GraphDef>>* remote) const;
  void Register(std::shared_ptr<MasterProgram> program, std::vector<std::pair<int, pb::GraphDef>> remote,
                Done<std::shared_ptr<const MasterProgram>> done);
  void RunPartial(const std::shared_ptr<PartialRun>& partial, RunStepCall call, Done<RunStepAnswer> done);
  void EndPartial(const std::shared_ptr<PartialRun>& partial);
  void OnStepEnded(MasterStep* step);
  PassOptions Passes() const;
  const SessionTask* FindTask(absl::string_view name) const;

  const MasterSessionOptions options_;
  std::string home_device_;
  PlacementOptions placement_;
  PartitionOptions partition_;  // what all signatures have in common
  std::atomic<int64_t> next_step_id_;

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
  int64_t next_callable_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<int64_t, CallableEntry> callables_ ABSL_GUARDED_BY(mu_);
  int64_t next_partial_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<PartialRun>> partial_runs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
