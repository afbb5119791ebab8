// A partial run (Session::PartialRun), independent of whether a local task or a master runs the step.
//
// The step's graph gets a _Recv in place of each feed and a _Send for each fetch (PartialStepCalls). It runs like any
// other graph, waits for feeds that have not been given yet, and exchanges tensors with the calls through a rendezvous.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/task/partial_step_calls.h"
#include "millrace/task/task.h"

namespace millrace {

// How the calls reach the step. The functions may be called on any thread until the step has ended, and must own what
// they use.
struct PartialStepPorts {
  std::function<Status(absl::string_view key, RendezvousItem item)> send;
  std::function<void(absl::string_view key, Rendezvous::Done done)> recv;
  // Cancels the step and all waits at its rendezvous.
  std::function<void(const Status& why)> cancel;
};

// Thread-safe. Held by shared_ptr.
class PartialStepRun : public std::enable_shared_from_this<PartialStepRun> {
 public:
  // `over` means that no further call is allowed, because everything was fetched or the step has failed.
  using Done = absl::AnyInvocable<void(StatusOr<std::vector<Tensor>> fetched, bool over)>;

  PartialStepRun(std::unique_ptr<PartialStepCalls> calls, PartialStepPorts ports)
      : calls_(std::move(calls)), ports_(std::move(ports)) {}

  // Feeds some tensors and fetches others. Calls `done` once: with INVALID_ARGUMENT for a call that is not allowed,
  // which leaves the step running; any other error ends the step. The last call completes when the step does.
  // `cancellation` (may be null; kept alive by `owner`) cancels the call and the step.
  void Call(absl::Span<const Feed> feeds, std::vector<std::string> fetches, CancellationManager* cancellation,
            std::shared_ptr<void> owner, Done done);
  void Cancel(const Status& why) { ports_.cancel(why); }

  // The step has ended. Call it once.
  void OnEnd(const Status& status);
  // Calls `then` with the step's status when the step has ended, or immediately if it already has.
  void WhenEnded(absl::AnyInvocable<void(Status)> then);

 private:
  struct OneCall;

  const std::unique_ptr<PartialStepCalls> calls_;
  const PartialStepPorts ports_;
  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Status status_ ABSL_GUARDED_BY(mu_);
  std::vector<absl::AnyInvocable<void(Status)>> when_ended_ ABSL_GUARDED_BY(mu_);
};

// Starts a partial run of `spec` as a single part on `task`; takes ownership of `graph`. Errors: those of
// PartialStepCalls::Prepare and Task::Compile, and the status given to Task::Close.
StatusOr<std::shared_ptr<PartialStepRun>> StartPartialStep(const std::shared_ptr<Task>& task,
                                                           const std::shared_ptr<TaskSession>& session,
                                                           std::unique_ptr<Graph> graph, const CallableSpec& spec,
                                                           const PartOptions& options);

}  // namespace millrace
