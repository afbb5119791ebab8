// Ops that wait for a resource to change: for capacity in a queue, or for enough gradients in an accumulator.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

// An op that is using a resource. Valid until the op has finished.
struct CallingOp {
  explicit CallingOp(const KernelContext& ctx)
      : step(&ctx.step()), allocator(ctx.allocator()), origin(UpdateOrigin::Of(ctx)) {}

  // Applies a state change through ResourceManager::Update.
  void Change(absl::FunctionRef<void()> change) const;

  const StepContext* step;
  Allocator* allocator;  // for the op's outputs
  UpdateOrigin origin;
};

enum class Progress {
  kNone,  // not possible yet; the state is unchanged
  kSome,  // the state changed, but the op still waits
  kDone,
};

// One op that may have to wait. Its callbacks run with the resource's lock held, except `done`.
struct Attempt {
  Attempt(const CallingOp& op, const char* waits_for) : op(op), waits_for(waits_for) {}

  CallingOp op;
  // Precedes the resource's name in the list of waits: "elements of".
  const char* waits_for;
  Wait::Kind kind = Wait::Kind::kElements;
  // Does what is possible now. If it returns kDone after a failure, it sets `result`.
  absl::AnyInvocable<Progress(Status* result)> run;
  // Rolls back the partial progress of an op that will not complete. May be empty.
  absl::AnyInvocable<void()> undo;
  // The message that the op fails with if its step is cancelled.
  const char* cancelled = "the operation was cancelled";
  // Called once, after the op has left the line.
  absl::AnyInvocable<void(Status)> done;

  Status result;
  int64_t id = 0;  // in its line, while waiting
  CancellationManager::Token token = 0;
  uint64_t wait = 0;  // in the list of waits
};

// Finished ops whose `done` is to be called once no lock is held.
class FinishedOps {
 public:
  FinishedOps() = default;
  // For a thread that works for the step `by`, which must not have ended yet: callbacks of other steps may then run on
  // this thread after its current event (ThreadHandover::RunNext). The step may end before Tell.
  explicit FinishedOps(const StepContext* by) : by_(ShareRef(by->handover)) {}

  void Add(Attempt attempt) { attempts_.push_back(std::move(attempt)); }
  // Calls `done` of each: directly for the first op of the step `own`, which the calling thread runs; on the steps' own
  // threads for all others, so that one step does not do another's work.
  void Tell(const StepContext* own);

 private:
  absl::InlinedVector<Attempt, 2> attempts_;
  RefPtr<ThreadHandover> by_;
};

// Completes an op that has nothing to do, with OK.
void FinishNow(const CallingOp& op, absl::AnyInvocable<void(Status)> done);

inline WaitRegistry::Describer NoDescriber() { return nullptr; }

// The ops waiting for one resource. Guarded by the owner's lock.
class WaitingLine {
 public:
  enum class Order {
    kFirstCome,  // FIFO: a waiting op blocks those behind it
    kAny,        // ops wait for different conditions; any that can proceed does
  };

  // `resource` names it in the list of waits: "FIFOQueue 'input'".
  explicit WaitingLine(std::string resource, ResourceKind kind = ResourceKind::kOther, Order order = Order::kFirstCome)
      : resource_(std::move(resource)), kind_(kind), order_(order) {}

  // Runs attempts as far as possible; returns true if anything changed.
  bool Advance(FinishedOps* finished);
  // Runs `attempt` unless an earlier one blocks it, and adds it to the line if it is not done. While it waits, the
  // callback returned by cancel(id) is called, without the owner's lock, if its step is cancelled, and the one returned
  // by `describe` is called to report progress in the list of waits; it takes the owner's lock itself. Both callbacks
  // must keep the owner alive. Returns true if anything changed.
  bool Join(Attempt attempt, FinishedOps* finished, absl::FunctionRef<absl::AnyInvocable<void()>(int64_t id)> cancel,
            absl::FunctionRef<WaitRegistry::Describer()> describe = NoDescriber);
  // Removes the op from the line if it is still there and rolls it back; it fails as cancelled.
  bool Cancel(int64_t id, FinishedOps* finished);
  // Fails all waiting ops with `why`.
  void FailAll(const Status& why, FinishedOps* finished);

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }

 private:
  void Leave(std::list<Attempt>::iterator at, FinishedOps* finished);

  const std::string resource_;
  const ResourceKind kind_;
  const Order order_;
  std::list<Attempt> waiting_;
  int64_t next_id_ = 1;
};

}  // namespace millrace
