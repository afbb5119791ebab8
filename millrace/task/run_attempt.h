// An attempt of a run that has an identity, on one task.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "millrace/base/cancellation.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

// Holds the record of the run while the attempt runs. Empty if the run has no identity.
struct RunAttempt {
  std::shared_ptr<ResourceManager> resources = nullptr;  // whose records it is in
  std::shared_ptr<RunRecord> record = nullptr;

  explicit operator bool() const { return record != nullptr; }
  // Lets a later attempt of the run begin, if one waits: on this thread.
  void End() const {
    if (record != nullptr) resources->runs().End(*record);
  }
};

struct RunAttemptOptions {
  RunIdentity identity = {};
  std::shared_ptr<ResourceManager> resources = nullptr;
  int64_t step_id = 0;
  CancellationManager* cancellation = nullptr;  // of the step; it ends the wait for an earlier attempt
  WaitRegistry* waits = nullptr;
  Scheduler* pool = nullptr;  // where to go on after a wait; null: on the thread that ends it
  // Called if an earlier attempt is running: cancels it.
  absl::AnyInvocable<void(const RunRecord& record, const Status& why)> cancel_earlier = nullptr;
};

// Calls `begun` once, on any thread, possibly before returning: when no earlier attempt of the run is running on this
// task, or with the reason why this one must not run. What `options` points to must live until then.
void BeginAttempt(RunAttemptOptions options, absl::AnyInvocable<void(StatusOr<RunAttempt>)> begun);

}  // namespace millrace
