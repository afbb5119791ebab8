// A part that is run repeatedly, without a message per run.
#pragma once

#include <atomic>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "millrace/cluster/worker/part_execution.h"

namespace millrace {

// For a part that neither sends nor receives tensors. Keeps itself alive until a run fails, and returns that result.
class RepeatedPart : public std::enable_shared_from_this<RepeatedPart> {
 public:
  RepeatedPart(std::shared_ptr<Worker> worker, PartRun run, absl::AnyInvocable<void(PartResult)> done)
      : worker_(std::move(worker)), run_(std::move(run)), done_(std::move(done)) {}

  // If the run has an identity, each repetition has a number of its own (RunRecords::BeginRepeating).
  void Start();

 private:
  enum class Step { kStarts, kStarted, kEnded };

  void Run();
  RunRecords& runs() const;
  // Numbers the next repetition.
  Status Count();
  Scheduler* pool() const;
  // Runs it again: on the event thread that completed the run, or on the pool.
  void GoOn();

  const std::shared_ptr<Worker> worker_;
  PartRun run_;
  absl::AnyInvocable<void(PartResult)> done_;
  std::atomic<Step> step_{Step::kStarts};
};

}  // namespace millrace
