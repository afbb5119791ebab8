// One step, driven by the master over all participating tasks.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "millrace/base/fan_in.h"
#include "millrace/cluster/master/master_session.h"

namespace millrace {

// Runs the part at home and asks the peers to run theirs, all concurrently. The first part that fails cancels the
// others; the step ends when every part has ended. Keeps itself alive until then.
class MasterStep : public std::enable_shared_from_this<MasterStep> {
 public:
  using Done = MasterSession::Done<MasterSession::StepResult>;

  // `rendezvous` is the step's rendezvous at home; null if the step runs on the master's own task only.
  MasterStep(std::shared_ptr<MasterSession> session, std::shared_ptr<const MasterProgram> program,
             std::vector<Tensor> feeds, const pb::RunOptions& options, int64_t step_id,
             RefPtr<StepRendezvous> rendezvous, Done done);
  // Call it before Start: keeps the tensors at home after a successful step, until the caller forgets the step
  // (StepTable::Forget).
  void KeepTensors() { keeps_tensors_ = true; }
  // Call it before Start: a peer that runs the whole step may repeat it and answer only when a run fails.
  void MayRepeat() { may_repeat_ = true; }
  // Call it before Start: the id under which its collective ops meet those of other masters' steps.
  void SetCollectiveStep(int64_t id) { collective_step_ = id; }
  // Call it instead of Start if the session accepts no more steps.
  void Refuse(Status why);
  // Starts the step with the caller's limits. Call it once.
  void Start(const CallControl& control);
  // Cancels the step from outside, on behalf of the client or the session.
  void Cancel(const Status& why) {
    if (!cancellation_.IsCancelled()) ended_from_outside_.store(true);
    cancellation_.StartCancel(why);
  }

  int64_t step_id() const { return step_id_; }
  absl::Time since() const { return since_; }
  // The peers whose parts have not ended.
  void ListAwaited(std::vector<Awaited>* peers) const;
  // All peers that take part. The loss of one fails the step also when its part has ended: what the part did there may
  // be lost with it, and others may wait for that, as a synchronous training's update waits for a gradient.
  void ListPeers(std::vector<Awaited>* peers) const;
  // Whether the loss of a peer fails this step.
  bool DependsOn(const Awaited& lost, const Status& why) const;

 private:
  void RunAtPeer(int index);
  // Streaming calls (lines). OpenLines decides, before any part runs, which peers are reached by one; StreamAtPeer
  // starts a peer's part; OnPushed handles a message from it, OnStreamEnd its end.
  void OpenLines();
  void StreamAtPeer(int index);
  void OnPushed(int index, const net::Bytes& message);
  void OnStreamEnd(int index, int64_t start_nanos, const StatusOr<net::Bytes>& answer);
  // Collects a peer's statistics and graphs, and returns its status with the peer's name in it.
  Status TakeAnswer(int index, Status status, pb::StepStats stats, std::vector<pb::GraphDef> graphs);
  void RunAtHome(int index, net::IncomingCall* from);
  int64_t NowNanos() const;
  static Awaited PeerOf(const ProgramPart& part);
  // Records how long the call that ran a peer's part took.
  void TraceCall(int index, int64_t start_nanos);
  void OnPart(int index, Status status);
  void End();
  // A part has failed: cancels the step.
  void Fail(const Status& why);
  // Keeps the first error that is not a consequence of another (IsDerived).
  void Note(const Status& status);

  const std::shared_ptr<MasterSession> session_;
  const std::shared_ptr<const MasterProgram> program_;
  std::vector<Tensor> feeds_;
  const bool trace_;
  const bool partition_graphs_;
  const absl::Duration timeout_;
  const RunIdentity run_;
  const int64_t step_id_;
  int64_t collective_step_ = 0;  // 0: none, or step_id_
  const absl::Time since_;
  Done done_;
  CancellationManager cancellation_;
  RefPtr<StepRendezvous> rendezvous_;
  RefPtr<ThreadHandover> handover_;  // of the threads that work for the step; may be null
  CancellationManager* outer_ = nullptr;
  CancellationManager::Token outer_token_ = 0;
  TimerQueue::Id timer_ = 0;
  std::atomic<bool> timed_out_{false};
  std::atomic<bool> ended_from_outside_{false};  // cancelled before a part failed
  bool keeps_tensors_ = false;
  bool may_repeat_ = false;
  FanIn parts_;                             // one arrival per part, and one for Start
  std::vector<StreamingWorker*> streamed_;  // by part; null if its call does not stream; constant once parts run

  mutable Mutex mu_;
  std::vector<bool> awaited_ ABSL_GUARDED_BY(mu_);  // by part
  Status status_ ABSL_GUARDED_BY(mu_);
  MasterSession::StepResult result_;  // each part writes its own fetches
  std::vector<pb::StepStats> stats_ ABSL_GUARDED_BY(mu_);
  std::vector<pb::GraphDef> graphs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
