// One execution of a collective op on one device of this task.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/cluster/collectives/buffer_exchange.h"
#include "millrace/cluster/collectives/collective_scope.h"
#include "millrace/cluster/watch/liveness.h"
#include "millrace/runtime/collective_executor.h"

namespace millrace {

class TaskCollectives;

// Agrees with the other members (who is in the group, what the instance is) and exchanges buffers with them. Ends once:
// by its result, the first error, the step's cancellation, a time limit, or the loss of a task that it waits for. An
// error fails the step in this task's BufferExchange, so that the other members learn of it.
//
// Thread-safe. Keeps itself alive by its callbacks; uses the kernel's context only until `done`.
class CollectiveRun : public std::enable_shared_from_this<CollectiveRun> {
 public:
  // With `join_only`, ends when the group is complete.
  CollectiveRun(std::shared_ptr<TaskCollectives> task, CollectiveScope scope, KernelContext& ctx, CollectiveCall call,
                bool join_only, CollectiveExecutor::Done done);
  void Start();

  // For the exchanges (exchange.h), from Exchange on.
  const CollectiveCall& call() const { return call_; }
  const DeviceGroup& group() const { return *joined_.group; }
  int rank() const { return rank_; }
  int source_rank() const { return source_rank_; }
  // "group:instance:frame:iteration", with which the keys of all its buffers begin.
  const std::string& buffer_prefix() const { return buffer_prefix_; }
  // Offers a buffer to the member `to`; `then` is called when the member has it. The bytes must not change before that.
  void Send(int to, const std::string& key, net::Bytes bytes, absl::AnyInvocable<void()> then);
  // `then` gets `size` bytes from the member `from`. Neither is called after an error, which ends the run.
  void Receive(int from, const std::string& key, size_t size, absl::AnyInvocable<void(const net::Bytes&)> then);
  // Call it before a piece of work on that many bytes.
  void BeforeWork(size_t bytes) const;
  // Ends the run; later calls are no-ops.
  void Finish(Status status);

  // Watches the steps of members that are to take something, once this has waited for a while: one that has failed
  // never takes it, and this may have nothing to receive from it.
  void WatchTakers();
  // What a member on another task is asked for a buffer with.
  pb::RecvBufRequest BufferRequest(const GroupMember& member, const std::string& key) const;
  void ListAwaited(std::vector<Awaited>* peers) const;
  void OnPeerLost(const Awaited& peer, const Status& why);

 private:
  enum class Phase { kJoining, kAgreeing, kExchanging };
  // A call to another task that has not been answered.
  struct PendingCall {
    CancellationManager cancellation;
    Awaited peer;
  };
  // What the members of an instance have agreed on: kept by the kernel (CollectiveCall::memory).
  struct Agreement {
    JoinedGroup joined;
    int source_rank;
  };

  bool RestoreAgreement();
  void Join();
  void JoinAtLeader();
  void JoinHere();
  void OnJoined(JoinedGroup joined);
  void Agree();
  void AgreeAtLeader(InstanceRequest request);
  void OnAgreed(int source_rank);
  void Exchange();
  InstanceRequest Instance() const;
  // Begins a phase, with the whole time limit.
  void Enter(Phase phase);
  void OnTimeLimit(Phase phase);
  std::shared_ptr<PendingCall> BeginCall(const Peer& peer);
  void EndCall(const std::shared_ptr<PendingCall>& call);
  bool finished() const;
  std::string Describe() const;
  Status CancelledStatus() const;

  const std::shared_ptr<TaskCollectives> task_;
  const CollectiveScope scope_;
  CollectiveCall call_;
  const bool join_only_;
  const std::string node_;
  const pb::DeviceAttributes device_;
  const int64_t step_id_;
  CancellationManager* const cancellation_;
  WaitRegistry* const waits_;
  Scheduler* const scheduler_;
  const RefPtr<ThreadHandover> handover_;
  const std::string buffer_prefix_;
  const std::string loop_;  // for messages: in which iteration it is; empty outside of loops

  // Written before Exchange, by one callback after another.
  JoinedGroup joined_;
  int rank_ = -1;
  int source_rank_ = -1;

  mutable Mutex mu_;
  CollectiveExecutor::Done done_ ABSL_GUARDED_BY(mu_);  // null once it has finished
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kJoining;
  CancellationManager::Token token_ ABSL_GUARDED_BY(mu_) = 0;
  TimerQueue::Id timer_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t wait_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t group_waiter_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t instance_waiter_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<PendingCall>> calls_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<int, int> receives_ ABSL_GUARDED_BY(mu_);  // that wait, by the member that they are from
  absl::flat_hash_map<int, int> sends_ ABSL_GUARDED_BY(mu_);     // that wait, by the member that they are for
  std::set<int> watched_ ABSL_GUARDED_BY(mu_);                   // members whose step is watched
};

}  // namespace millrace
