// What a task does for masters: keeps their graphs, runs steps of them, and hands tensors to other tasks.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/clock.h"
#include "millrace/base/file.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/liveness.h"
#include "millrace/cluster/recent_ids.h"
#include "millrace/cluster/step_rendezvous.h"
#include "millrace/cluster/worker_interface.h"
#include "millrace/cluster/worker_session.h"
#include "millrace/executor/step_arena.h"
#include "millrace/executor/step_stats.h"
#include "millrace/runtime/step_resources.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

struct WorkerOptions {
  TaskId task;
  ClusterSpec cluster;
  std::vector<std::shared_ptr<Device>> devices;  // not empty
  std::shared_ptr<ResourceManager> resources;
  std::shared_ptr<WaitRegistry> waits;
  FileSystem* files = nullptr;
  Scheduler* inter_op = nullptr;  // where independent ops run
  net::Transport* transport = nullptr;
  Clock* clock = Clock::Real();
  LivenessOptions liveness = {};
  LeaseOptions lease = {};
  std::function<void()> on_session_end = nullptr;  // called after each, on any thread; may be null
};

// A part of a step for the master of the same task: no message is made of it.
struct PartRun {
  std::shared_ptr<RegisteredGraph> graph;
  int64_t step_id = 0;
  // Null for a step that only this task takes part in.
  RefPtr<StepRendezvous> rendezvous = nullptr;
  std::vector<Tensor> feeds = {};
  size_t num_fetches = 0;
  bool trace = false;
  CancellationManager* cancellation = nullptr;  // of the whole step
  std::shared_ptr<void> owner = nullptr;        // keeps `cancellation` alive
  net::IncomingCall* from = nullptr;            // whose handler Run is called in, if any
  // Its master may be lost in the middle of it: others who want its tensors then hear UNAVAILABLE, not that somebody wanted no more.
  bool on_line = false;
};
struct PartResult {
  Status status;
  std::vector<Tensor> fetches;
  pb::StepStats step_stats;
};

// How many of something ended well, when the last did, and how long they took. Thread-safe, and cheap enough for each step.
class FinishCounter {
 public:
  void Count(absl::Time now, absl::Duration took = absl::ZeroDuration()) {
    count_.fetch_add(1, std::memory_order_relaxed);
    took_nanos_.fetch_add(absl::ToInt64Nanoseconds(took), std::memory_order_relaxed);
    last_micros_.store(absl::ToUnixMicros(now), std::memory_order_relaxed);
  }
  int64_t count() const { return count_.load(std::memory_order_relaxed); }
  // Microseconds since 1970; 0: none did.
  int64_t last_micros() const { return last_micros_.load(std::memory_order_relaxed); }
  // Added up over all of them.
  int64_t took_micros() const { return took_nanos_.load(std::memory_order_relaxed) / 1000; }

 private:
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> last_micros_{0};
  std::atomic<int64_t> took_nanos_{0};
};

// A step that runs here, for status pages.
struct RunningPart {
  int64_t step_id = 0;
  std::string session;
  absl::Time since;
};

// Starts no threads: it answers on the thread that asks, or on that of whoever brings what was missing. Thread-safe. Behind a shared_ptr.
class Worker : public WorkerInterface, public LivenessClient, public LeaseClient, public std::enable_shared_from_this<Worker> {
 public:
  static std::shared_ptr<Worker> Make(WorkerOptions options);
  ~Worker() override;

  void GetStatus(const CallControl& control, Done<pb::GetStatusResponse> done) override;
  void CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request, DoneStatus done) override;
  void DeleteWorkerSession(const CallControl& control, const std::string& session, DoneStatus done) override;
  void RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request,
                     Done<pb::RegisterGraphResponse> done) override;
  void DeregisterGraph(const CallControl& control, pb::DeregisterGraphRequest request, DoneStatus done) override;
  void RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) override;
  // RunGraph as a call that streams; answers it.
  void ServeGraph(const CallControl& control, std::shared_ptr<net::IncomingCall> call);
  void CleanupGraph(const CallControl& control, int64_t step_id, DoneStatus done) override;
  void CleanupAll(const CallControl& control, std::vector<std::string> containers, DoneStatus done) override;
  void RecvTensor(const CallControl& control, int64_t step_id, const std::string& key, Done<RendezvousItem> done) override;
  void RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys, Done<std::vector<RendezvousItem>> done) override;

  // For the master of the same task.
  StatusOr<std::shared_ptr<WorkerSession>> MakeSession(const pb::CreateWorkerSessionRequest& request);
  void Run(PartRun run, absl::AnyInvocable<void(PartResult)> done);
  // Again and again until a run fails, which is the result. For a part without tensors from or for others.
  void Repeat(PartRun run, absl::AnyInvocable<void(PartResult)> done);
  // The step's rendezvous, which is kept until ForgetStep ends it.
  RefPtr<StepRendezvous> StepFor(int64_t step_id);
  void ForgetStep(int64_t step_id);

  // All steps end with `why`, and so do later ones: the task is going down. Calls `idle` when none runs any more. Once.
  void Shutdown(const Status& why, absl::AnyInvocable<void()> idle);
  // Lets go of sessions and state; when no step runs.
  void Clear();

  const WorkerOptions& options() const { return options_; }
  std::vector<RunningPart> ListRunning() const;
  // The steps that this task knows of, whether they run here or only have tensors or receivers waiting; in order.
  std::vector<int64_t> ListSteps() const;
  std::vector<std::shared_ptr<WorkerSession>> ListSessions() const;
  // Everything that is waited for here, tensors of other tasks too; the oldest first.
  std::vector<Wait> ListWaits() const;
  // Steps that the master of this task drove, which it counts; and parts that ran here.
  FinishCounter& steps_finished() { return steps_finished_; }
  const FinishCounter& parts_finished() const { return parts_finished_; }
  absl::Time started() const { return started_; }

  bool ListAwaited(std::vector<Awaited>* peers) override;
  void OnPeerLost(const Awaited& peer, const Status& why) override;
  std::vector<LeasedSession> ListLeased() override;
  void Expire(const std::string& handle, const Status& why) override;

 private:
  class PartExecution;
  struct Step {
    RefPtr<StepRendezvous> rendezvous;
    std::string session;      // whose; empty until it runs here, "legacy" for one of none
    absl::Time touched;       // when it was last heard of
    int receivers = 0;        // other tasks that wait for tensors of it
    bool running = false;
    bool kept = false;        // by the master of this task, until it says ForgetStep
    bool went_well = false;   // it ran, and may be forgotten once its tensors are taken
  };

  explicit Worker(WorkerOptions options);
  // Whether a tensor under this key can come from this process.
  Status CheckKey(const std::string& key) const;
  // Sessions that a master's task made before it was restarted: nobody is left who could close them.
  void DeleteOrphans(const std::string& master_task, int64_t master_incarnation);
  StatusOr<std::shared_ptr<WorkerSession>> FindSession(const std::string& handle, bool created) const;
  // ALREADY_EXISTS for a step that runs here, or has.
  Status BeginRunGraph(int64_t step_id, const std::string& session_handle);
  void FinishRunGraph(const RunGraphCall& call, StepRendezvous& rendezvous, RunGraphAnswer& answer, PartResult result);
  // The part has run; the step is forgotten when nothing of it is left for others.
  void NoteRan(int64_t step_id, const StepRendezvous& rendezvous, bool went_well);
  // What ServeGraph runs: the line is open and the feeds are there.
  StatusOr<PartRun> BeginServed(const CallControl& control, StepStart* start, const std::shared_ptr<net::IncomingCall>& call);
  RefPtr<StepArena> TakeArena();
  void GiveBack(RefPtr<StepArena> arena);
  // Of RecvTensor. The step is forgotten without waiting to be told when it went well and this was the last tensor of it, or when
  // it has not begun here and nobody waits for it any more.
  void OnReceiverGone(int64_t step_id, const StepRendezvous* rendezvous, bool gave_up);
  // Made at first use. For a step that is over it is one on which nothing can be sent or received.
  RefPtr<StepRendezvous> FindStep(int64_t step_id, bool keep, int new_receivers);
  // In the order of their numbers, so that a simulation gives the same events each time.
  std::vector<RefPtr<StepRendezvous>> Rendezvous() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropStaleSteps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const WorkerOptions options_;
  const absl::Time started_;
  FinishCounter steps_finished_, parts_finished_;
  std::shared_ptr<LivenessMonitor> liveness_;
  std::shared_ptr<LeaseMonitor> leases_;
  // Of callers that never made one.
  std::shared_ptr<WorkerSession> legacy_session_;

  mutable Mutex mu_;
  Status going_down_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerSession>> sessions_ ABSL_GUARDED_BY(mu_);
  RecentIds closed_sessions_ ABSL_GUARDED_BY(mu_);  // hashes of handles: a request to make one may come after its end
  absl::flat_hash_map<int64_t, Step> steps_ ABSL_GUARDED_BY(mu_);
  RecentIds ended_steps_ ABSL_GUARDED_BY(mu_);  // late messages of theirs find nothing to begin anew
  absl::Time last_sweep_ ABSL_GUARDED_BY(mu_);
  absl::AnyInvocable<void()> on_idle_ ABSL_GUARDED_BY(mu_);
  PartExecution* running_ ABSL_GUARDED_BY(mu_) = nullptr;  // a list through the executions
  std::vector<RefPtr<StepArena>> idle_arenas_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
