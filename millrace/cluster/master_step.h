// One step over the tasks that take part in it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "millrace/cluster/master_session.h"

namespace millrace {

// Runs the part at home and asks the peers for theirs, all at once. The first part that fails cancels the others; the step ends when
// every part has. Lives until then by itself.
class MasterStep : public std::enable_shared_from_this<MasterStep> {
 public:
  using Done = MasterSession::Done<MasterSession::StepResult>;

  // `rendezvous` is the step's at home: null for one of the master's own task alone.
  MasterStep(std::shared_ptr<MasterSession> session, std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds,
             const pb::RunOptions& options, int64_t step_id, RefPtr<StepRendezvous> rendezvous, Done done);
  // Before Start: the tensors at home stay when the step ends well, until whoever asked for that forgets the step.
  void KeepTensors() { keeps_tensors_ = true; }
  // Before Start: a peer that runs all of the step by itself may run it again and again, and answer when a run fails.
  void MayRepeat() { may_repeat_ = true; }
  // Instead of Start: the session takes no more steps.
  void Refuse(Status why);
  // With the caller's own limits. Call once.
  void Start(const CallControl& control);
  // From outside.
  void Cancel(const Status& why) {
    if (!cancellation_.IsCancelled()) ended_from_outside_.store(true);
    cancellation_.StartCancel(why);
  }

  int64_t step_id() const { return step_id_; }
  absl::Time since() const { return since_; }
  // What the parts at peers still owe.
  void ListAwaited(std::vector<Awaited>* peers) const;
  bool Awaits(const std::string& task) const;

 private:
  void RunAtPeer(int index);
  // Over lines (master_step_lines.cc): which peers are reached so in this step, before any part runs; the part at one of them; what comes from
  // it, and its end.
  void OpenLines();
  void StreamAtPeer(int index);
  void OnPushed(int index, const net::Bytes& message);
  void OnStreamEnd(int index, int64_t start_nanos, const StatusOr<net::Bytes>& answer);
  // The status of a peer's part, with the peer's name in it, and what it tells of itself.
  Status TakeAnswer(int index, Status status, pb::StepStats stats, std::vector<pb::GraphDef> graphs);
  void RunAtHome(int index, net::IncomingCall* from);
  int64_t NowNanos() const;
  // Notes how long the call that ran a peer's part took.
  void TraceCall(int index, int64_t start_nanos);
  void OnPart(int index, Status status);
  void End();
  // A part has failed, and so has the step.
  void Fail(const Status& why);
  // The first error that is no mere consequence.
  void Note(const Status& status);

  const std::shared_ptr<MasterSession> session_;
  const std::shared_ptr<const MasterProgram> program_;
  std::vector<Tensor> feeds_;
  const bool trace_;
  const bool partition_graphs_;
  const absl::Duration timeout_;
  const int64_t step_id_;
  const absl::Time since_;
  Done done_;
  CancellationManager cancellation_;
  RefPtr<StepRendezvous> rendezvous_;
  CancellationManager* outer_ = nullptr;
  CancellationManager::Token outer_token_ = 0;
  TimerQueue::Id timer_ = 0;
  std::atomic<bool> timed_out_{false};
  std::atomic<bool> ended_from_outside_{false};  // before a part failed
  bool keeps_tensors_ = false;
  bool may_repeat_ = false;
  std::atomic<int> pending_{0};
  std::vector<bool> streamed_;  // by part; constant once parts run

  mutable Mutex mu_;
  std::vector<bool> awaited_ ABSL_GUARDED_BY(mu_);  // by part
  Status status_ ABSL_GUARDED_BY(mu_);
  MasterSession::StepResult result_;  // each part writes its own fetches
  std::vector<pb::StepStats> stats_ ABSL_GUARDED_BY(mu_);
  std::vector<pb::GraphDef> graphs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
