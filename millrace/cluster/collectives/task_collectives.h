// The collective ops of one task: runs those of its own devices, and serves those of other tasks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/cluster/collectives/buffer_exchange.h"
#include "millrace/cluster/collectives/collective_scope.h"
#include "millrace/cluster/collectives/step_sequence.h"
#include "millrace/cluster/watch/liveness.h"
#include "millrace/cluster/worker/worker_interface.h"
#include "millrace/runtime/collective_executor.h"

namespace millrace {

class CollectiveRun;

struct TaskCollectivesOptions {
  std::string task = {};  // used in messages
  // The scope of a session, by its handle.
  std::function<StatusOr<CollectiveScope>(string_view session)> scope = nullptr;
  // Whether a device of this process has the incarnation.
  std::function<bool(uint64_t incarnation)> has_device = nullptr;
  // Called when an op begins to wait for another task. May be null.
  std::function<void()> on_remote_wait = nullptr;
  std::function<uint64_t()> random = nullptr;  // null: the machine's
  TimerQueue* timers = TimerQueue::Real();
  Clock* clock = Clock::Real();
};

// Thread-safe. Starts no threads. Held by shared_ptr.
class TaskCollectives : public std::enable_shared_from_this<TaskCollectives> {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(StatusOr<T>)>;

  explicit TaskCollectives(TaskCollectivesOptions options);

  // What kernels find in a ResourceManager.
  RefPtr<CollectiveExecutor> NewExecutor();

  // For the ops of this task; see CollectiveExecutor.
  void Run(KernelContext& ctx, CollectiveCall call, bool join_only, CollectiveExecutor::Done done);

  // For other tasks. All take messages as they came; an error says what is wrong with one. The first two form groups
  // and instances here, as the leader.
  void CompleteGroup(const CallControl& control, const pb::CompleteGroupRequest& request,
                     Done<pb::CompleteGroupResponse> done);
  void CompleteInstance(const CallControl& control, const pb::CompleteInstanceRequest& request,
                        Done<pb::CompleteInstanceResponse> done);
  StatusOr<pb::GetStepSequenceResponse> GetStepSequence(const pb::GetStepSequenceRequest& request);
  void RecvBuf(const CallControl& control, const pb::RecvBufRequest& request, Done<net::Bytes> done);

  // The id of a step with collective ops, which this task's master is about to run for a session with `scope`: asks the
  // leader for it if the sequence is not known here, or the last step has failed. Call EndStepOf when the step has
  // ended.
  void BeginStepOf(const CollectiveScope& scope, int64_t graph_key, const CallControl& control, Done<int64_t> done);
  void EndStepOf(const CollectiveScope& scope, int64_t graph_key, int64_t step_id, const Status& status);

  // The buffers of the part's collective ops are exchanged under `collective_step`: its master has an id of its own for
  // the step, since another master's parts of the same collective step may run on a task that has parts of both.
  void BeginPart(int64_t step_id, int64_t collective_step);
  void EndPart(int64_t step_id);

  // A part of a step has failed here, or its master has forgotten the step: nobody will offer its buffers any more.
  void FailStep(int64_t step_id, const Status& why);
  void Shutdown(const Status& why);
  // The last session with a leader has ended. A task that is not the leader asks again next time; the leader keeps what
  // TensorFlow's tasks remember.
  void ReleaseCluster(bool leads);

  bool ListAwaited(std::vector<Awaited>* peers) const;
  void OnPeerLost(const Awaited& peer, const Status& why);
  void ListWaits(std::vector<Wait>* waits) const { exchange_.ListWaits(waits); }

  const TaskCollectivesOptions& options() const { return options_; }
  BufferExchange& exchange() { return exchange_; }
  // The groups of all sessions that have a leader.
  const std::shared_ptr<GroupTable>& cluster_groups() const { return cluster_groups_; }

 private:
  friend class CollectiveRun;
  // The id of the step for other masters.
  int64_t CollectiveStep(int64_t step_id) const;
  void Add(CollectiveRun* run);
  void Remove(CollectiveRun* run);
  std::vector<std::shared_ptr<CollectiveRun>> Runs() const;

  const TaskCollectivesOptions options_;
  BufferExchange exchange_;
  StepSequences sequences_;
  const std::shared_ptr<GroupTable> cluster_groups_ = std::make_shared<GroupTable>();
  mutable Mutex mu_;
  uint64_t next_run_ ABSL_GUARDED_BY(mu_) = 1;
  struct Entry {
    uint64_t number;  // in the order of their beginning
    std::weak_ptr<CollectiveRun> run;
  };
  absl::flat_hash_map<const CollectiveRun*, Entry> runs_ ABSL_GUARDED_BY(mu_);
  struct StepOfMaster {
    int64_t collective_step = 0;
    int parts = 0;
  };
  absl::flat_hash_map<int64_t, StepOfMaster> steps_ ABSL_GUARDED_BY(mu_);  // those with an id of their own
};

}  // namespace millrace
