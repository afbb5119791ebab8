// One part of a step at work on this task.
#pragma once

#include <memory>

#include "millrace/cluster/worker.h"

namespace millrace {

// Deletes itself when the part has ended.
class Worker::PartExecution {
 public:
  PartExecution(std::shared_ptr<Worker> worker, PartRun run, absl::AnyInvocable<void(PartResult)> done);
  void Start();

 private:
  friend class Worker;
  void End(Status status);
  Status SendLateReads();

  const std::shared_ptr<Worker> worker_;
  PartRun run_;
  absl::AnyInvocable<void(PartResult)> done_;
  const absl::Time since_;
  StepResources step_resources_;
  StepContext step_;
  RefPtr<StepArena> arena_;
  std::unique_ptr<StepStatsCollector> stats_;
  PartResult result_;
  CancellationManager::Token token_ = 0;
  // Guarded by the worker's mu_.
  bool listed_ = false;
  PartExecution* next_ = nullptr;
  PartExecution* previous_ = nullptr;
};

// What ended a part from outside, such as the end of its task, counts for more than how an op felt it.
Status CauseOf(Status felt, CancellationManager* cancellation);

}  // namespace millrace
