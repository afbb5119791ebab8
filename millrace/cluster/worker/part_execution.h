// One part of a running step on this task: what a cluster adds to Task::RunAsync.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/cluster/step/step_rendezvous.h"
#include "millrace/cluster/worker/worker_session.h"
#include "millrace/executor/step_stats.h"
#include "millrace/net/transport.h"

namespace millrace {

class Worker;

// The arguments of a run.
struct PartRun {
  std::shared_ptr<RegisteredGraph> graph;
  int64_t step_id = 0;
  // Null for a step that runs on this task only.
  RefPtr<StepRendezvous> rendezvous = nullptr;
  std::vector<Tensor> feeds = {};
  size_t num_fetches = 0;
  bool trace = false;
  CancellationManager* cancellation = nullptr;  // the step's cancellation
  std::shared_ptr<void> owner = nullptr;        // keeps `cancellation` alive
  RefPtr<ThreadHandover> handover = nullptr;    // of the threads that work for the step; may be null
  net::IncomingCall* from = nullptr;            // the call in whose handler Run is called, if any
  // Whether the part is run by a line. If its master is lost, other tasks that wait for its tensors then get
  // UNAVAILABLE instead of CANCELLED.
  bool on_line = false;
  RunIdentity run = {};
  int64_t collective_step = 0;  // see RunGraphCall
};

struct PartResult {
  Status status;
  std::vector<Tensor> fetches;
  pb::StepStats step_stats;
};

// Connects a run of the task with its step: receives tensors of other tasks through the rendezvous, sends late reads,
// and reports the end. Deletes itself afterwards.
class PartExecution {
 public:
  PartExecution(std::shared_ptr<Worker> worker, PartRun run, absl::AnyInvocable<void(PartResult)> done);
  void Start();

 private:
  // Returns false if the step was already cancelled.
  bool JoinStep();
  void End(Status status);
  Status SendLastFetches();

  const std::shared_ptr<Worker> worker_;
  PartRun run_;
  absl::AnyInvocable<void(PartResult)> done_;
  std::unique_ptr<StepStatsCollector> stats_;
  PartResult result_;
  CancellationManager::Token token_ = 0;
};

// The status to report for a part: if it was ended from outside, for example by the shutdown of its task, that reason
// takes precedence over the error of the cancelled op.
Status CauseOf(Status felt, CancellationManager* cancellation);

}  // namespace millrace
