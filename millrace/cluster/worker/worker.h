// The worker of a task: keeps the graphs of masters, runs their steps, and serves tensors to other tasks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/collectives/task_collectives.h"
#include "millrace/cluster/watch/liveness.h"
#include "millrace/cluster/watch/session_lease.h"
#include "millrace/cluster/worker/finish_counter.h"
#include "millrace/cluster/worker/part_execution.h"
#include "millrace/cluster/worker/session_table.h"
#include "millrace/cluster/worker/step_table.h"
#include "millrace/cluster/worker/worker_interface.h"
#include "millrace/task/task.h"

namespace millrace {

struct WorkerOptions {
  std::shared_ptr<Task> task = nullptr;  // its name is that of `id`
  TaskId id = {};
  ClusterSpec cluster = {};
  net::Transport* transport = nullptr;
  LivenessOptions liveness = {};
  LeaseOptions lease = {};
  // The task that forms the groups of collective ops, for sessions that name none; may be empty.
  std::string collective_group_leader = {};
  std::function<uint64_t()> random = nullptr;      // for ids; null: the machine's
  std::function<void()> on_session_end = nullptr;  // called when a session has ended, on any thread; may be null
};

// Serves a Task to masters and other workers. Starts no threads: it answers on the calling thread, or on the thread
// that completes what the call waited for. Thread-safe. Held by shared_ptr.
class Worker : public WorkerInterface,
               public LivenessClient,
               public LeaseClient,
               public std::enable_shared_from_this<Worker> {
 public:
  static std::shared_ptr<Worker> Make(WorkerOptions options);
  ~Worker() override;

  void GetStatus(const CallControl& control, Done<pb::GetStatusResponse> done) override;
  void CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request,
                           DoneStatus done) override;
  void DeleteWorkerSession(const CallControl& control, const std::string& session, DoneStatus done) override;
  void RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request,
                     Done<pb::RegisterGraphResponse> done) override;
  void DeregisterGraph(const CallControl& control, pb::DeregisterGraphRequest request, DoneStatus done) override;
  void RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) override;
  // Serves RunGraph as a streaming call (a line).
  void ServeGraph(const CallControl& control, std::shared_ptr<net::IncomingCall> call);
  void CleanupGraph(const CallControl& control, int64_t step_id, DoneStatus done) override;
  void CleanupAll(const CallControl& control, std::vector<std::string> containers, DoneStatus done) override;
  void RecvTensor(const CallControl& control, int64_t step_id, const std::string& key,
                  Done<RendezvousItem> done) override;
  void RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys,
                   Done<std::vector<RendezvousItem>> done) override;
  void CompleteGroup(const CallControl& control, const pb::CompleteGroupRequest& request,
                     Done<pb::CompleteGroupResponse> done) override;
  void CompleteInstance(const CallControl& control, const pb::CompleteInstanceRequest& request,
                        Done<pb::CompleteInstanceResponse> done) override;
  void GetStepSequence(const CallControl& control, const pb::GetStepSequenceRequest& request,
                       Done<pb::GetStepSequenceResponse> done) override;
  void RecvBuf(const CallControl& control, const pb::RecvBufRequest& request, Done<net::Bytes> done) override;

  // For the master of the same task, without messages.
  StatusOr<std::shared_ptr<WorkerSession>> MakeSession(const pb::CreateWorkerSessionRequest& request);
  void Run(PartRun run, absl::AnyInvocable<void(PartResult)> done);
  // Runs a part repeatedly until a run fails, and returns that result. For a part that neither sends nor receives
  // tensors.
  void Repeat(PartRun run, absl::AnyInvocable<void(PartResult)> done);

  // Ends all current and later steps with `why`, because the task is shutting down. Calls `idle` when none is running.
  // Call it once.
  void Shutdown(const Status& why, absl::AnyInvocable<void()> idle);
  // Releases sessions and state. Call it when no step is running.
  void Clear();

  const WorkerOptions& options() const { return options_; }
  Task& task() const { return *options_.task; }
  StepTable& steps() const { return *steps_; }
  SessionTable& sessions() const { return *sessions_; }
  LivenessMonitor& liveness() const { return *liveness_; }
  TaskCollectives& collectives() const { return *collectives_; }
  std::vector<RunningPart> ListRunning() const { return task().ListRunning(); }
  // The ids of the steps that this task knows, including those that only have unreceived tensors or waiting receivers;
  // sorted.
  std::vector<int64_t> ListSteps() const { return steps_->List(); }
  std::vector<std::shared_ptr<WorkerSession>> ListSessions() const { return sessions_->List(); }
  // Whether there is a session whose client may come back to it (LeaseMonitor::AnyAttended).
  bool HasAttendedSession() const { return leases_->AnyAttended(); }
  // All waits on this task, including those for tensors of other tasks; oldest first.
  std::vector<Wait> ListWaits() const;
  // Completed steps that the master of this task drove (counted by the master), and completed parts that ran here.
  FinishCounter& steps_finished() { return steps_finished_; }
  const FinishCounter& parts_finished() const { return parts_finished_; }
  void CountPart() { parts_finished_.Count(task().clock()->Now()); }
  absl::Time started() const { return started_; }

  bool ListAwaited(std::vector<Awaited>* peers) override;
  void OnPeerLost(const Awaited& peer, const Status& why) override;
  std::vector<LeasedSession> ListLeased() override;
  void Expire(const std::string& handle, const Status& why) override;

 private:
  explicit Worker(WorkerOptions options);
  void EndStep(int64_t step_id);
  std::shared_ptr<TaskCollectives> NewCollectives();
  // Puts the executor of collective ops where the kernels that use `resources` find it.
  void OfferCollectives(ResourceManager* resources);
  // OK if a tensor with this key can come from this process.
  Status CheckKey(const std::string& key) const;
  StatusOr<std::shared_ptr<WorkerSession>> NewSession(const pb::CreateWorkerSessionRequest& request);
  void FinishRunGraph(const RunGraphCall& call, StepRendezvous& rendezvous, RunGraphAnswer& answer, PartResult result);

  const WorkerOptions options_;
  const absl::Time started_;
  FinishCounter steps_finished_, parts_finished_;
  const std::shared_ptr<StepTable> steps_;
  const std::shared_ptr<TaskCollectives> collectives_;
  const std::unique_ptr<SessionTable> sessions_;
  std::shared_ptr<LivenessMonitor> liveness_;
  std::shared_ptr<LeaseMonitor> leases_;
};

}  // namespace millrace
