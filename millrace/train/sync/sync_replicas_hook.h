// The hook of a SyncReplicasOptimizer. Internal to train/sync/: programs get it from MakeSessionRunHook.
#pragma once

#include <memory>
#include <string>

#include "millrace/train/hooks/session_run_hook.h"
#include "millrace/train/queue_runner.h"
#include "millrace/train/sync/sync_replicas_nodes.h"

namespace millrace {

// In each session, the chief's hook initialises the shared state (and hands out the first tokens unless the parameter
// servers already have them) and starts the updates; a worker's hook waits for that in a named wait. At the end of the
// training each leaves enough tokens behind that nobody else waits for ever.
class SyncReplicasHook : public SessionRunHook {
 public:
  SyncReplicasHook(std::shared_ptr<const SyncReplicasNodes> nodes, QueueRunner updates, Operation init_tokens,
                   bool is_chief, std::string name);

  // At the chief: FAILED_PRECONDITION names the variables that have no value.
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  bool StepsTogether() const override { return true; }
  // Only the chief's update changes variables.
  bool CancelledStepLeavesNoTrace() const override { return true; }
  Status End(ClientSession* session) override;

 private:
  Status BeginAsChief(ClientSession* session, Coordinator* coordinator);
  Status RunOnce(ClientSession* session, const Operation& op);
  // In fixed order and a later session: FAILED_PRECONDITION if the training is not where this worker left it.
  Status CheckContinues(ClientSession* session);
  Status BeginAsWorker(ClientSession* session, Coordinator* coordinator);

  const std::shared_ptr<const SyncReplicasNodes> nodes_;
  const QueueRunner updates_;
  const Operation init_tokens_;
  const bool is_chief_;
  const std::string name_;
  // Whether an update that was under way when a session was lost is continued in the next one.
  const bool continues_updates_;
  bool has_begun_ = false;
  RepeatedRuns runs_;  // of the updates
  // Of what begins a session; the same until it has succeeded, so that tokens are not handed out twice.
  RunIdentity begin_run_ = RunIdentity::OfNewClient();
};

}  // namespace millrace
