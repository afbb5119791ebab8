// Cancellation of everything that waits on behalf of a step.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"

namespace millrace {

// Thread-safe. Callbacks run on the thread that cancels, without any lock held.
class CancellationManager {
 public:
  using Token = int64_t;

  // Calls every registered callback once; later registrations fail. The first call's status is kept; later calls are
  // no-ops.
  void StartCancel(Status why = absl::CancelledError("the step was cancelled"));

  bool IsCancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // OK until cancelled.
  Status status() const;

  // True if it was neither cancelled nor asked for a token, so that a later step can reuse it.
  bool IsUnused() const { return !IsCancelled() && next_token_.load(std::memory_order_relaxed) == 1; }

  Token NewToken() { return next_token_.fetch_add(1, std::memory_order_relaxed); }

  // Returns false if cancellation has already started; `callback` is then never called.
  [[nodiscard]] bool Register(Token token, absl::AnyInvocable<void()> callback);

  // Returns true if the callback was removed and will not run. Returns false if it has run or is running; the call then
  // blocks until it has finished, so that its captures may be destroyed. The wait does not hand over the thread's other
  // duties: a caller that may be on an event thread calls HandOver first, and the backstop (EventThread) bounds the
  // rest.
  bool Deregister(Token token);

 private:
  // The registered callbacks. Most steps have one or two at a time, which allocate nothing.
  class Callbacks {
   public:
    void Add(Token token, absl::AnyInvocable<void()> callback);
    // Null if it is not there.
    absl::AnyInvocable<void()> Take(Token token);
    // All of them in token order, so that a simulation is deterministic.
    std::vector<std::pair<Token, absl::AnyInvocable<void()>>> TakeAll();

   private:
    absl::InlinedVector<std::pair<Token, absl::AnyInvocable<void()>>, 2> few_;
    absl::flat_hash_map<Token, absl::AnyInvocable<void()>> more_;
  };

  mutable Mutex mu_;
  CondVar callbacks_done_;
  std::atomic<bool> cancelled_{false};
  std::atomic<Token> next_token_{1};
  bool calling_ ABSL_GUARDED_BY(mu_) = false;
  Status why_ ABSL_GUARDED_BY(mu_);
  Callbacks callbacks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
