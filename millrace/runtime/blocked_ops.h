// Ops that wait for a resource to change: a queue to have room, an accumulator to have enough
// gradients.
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

// An op at work on a resource, as the resource sees it. Lives until the op has finished.
struct CallingOp {
  explicit CallingOp(const KernelContext& ctx)
      : step(&ctx.step()),
        allocator(ctx.allocator()),
        origin{.step_id = ctx.step().step_id, .node = &ctx.node(), .iteration = ctx.iteration()} {}

  // A change of state, through the one entry point for it.
  void Change(absl::FunctionRef<void()> change) const;

  const StepContext* step;
  Allocator* allocator;  // for what the op gives
  UpdateOrigin origin;
};

enum class Progress {
  kNone,  // nothing to do yet: the state is as it was
  kSome,  // the state changed, the op still waits
  kDone,
};

// One op that may have to wait. Its functions are called with the resource's lock held, `done`
// without.
struct Attempt {
  Attempt(const CallingOp& op, const char* waits_for) : op(op), waits_for(waits_for) {}

  CallingOp op;
  // Goes before the resource's name in the list of waits: "elements of".
  const char* waits_for;
  Wait::Kind kind = Wait::Kind::kElements;
  // Does what can be done now; sets `result` when it is done and failed.
  absl::AnyInvocable<Progress(Status* result)> run;
  // Puts back what an op that is not going to be done has taken. May be empty.
  absl::AnyInvocable<void()> undo;
  // What the op fails with when its step is cancelled.
  const char* cancelled = "the operation was cancelled";
  // Called once, after the op left the line.
  absl::AnyInvocable<void(Status)> done;

  Status result;
  int64_t id = 0;  // in its line, while it waits
  CancellationManager::Token token = 0;
  uint64_t wait = 0;  // in the list of waits
};

// Ops that are done and whose callers are to be told so once no lock is held.
class FinishedOps {
 public:
  void Add(Attempt attempt) { attempts_.push_back(std::move(attempt)); }
  // Tells them: the op `own`, of this thread, at once; others on their steps' threads, so that one
  // step does not do the work of another.
  void Tell(const StepContext* own);

 private:
  absl::InlinedVector<Attempt, 2> attempts_;
};

// Ends an op that has nothing to do, without an error.
void FinishNow(const CallingOp& op, absl::AnyInvocable<void(Status)> done);

inline WaitRegistry::Describer NoDescriber() { return nullptr; }

// Ops that wait for one resource. The owner guards it with its lock.
class WaitingLine {
 public:
  enum class Order {
    kFirstCome,  // an op that waits holds up those behind it
    kAny,        // ops wait for different things: whoever can, goes
  };

  // `resource` names it in the list of waits.
  explicit WaitingLine(std::string resource, Order order = Order::kFirstCome)
      : resource_(std::move(resource)), order_(order) {}

  // Runs attempts as far as they go; true when anything changed.
  bool Advance(FinishedOps* finished);
  // Runs `attempt` when nobody holds it up, and otherwise or when it is not done puts it in the
  // line. From then on what `cancel` gives for its id is called, without the owner's lock, when its
  // step is cancelled; it keeps the owner alive. So does what `describe` gives, which tells the list
  // of waits how far the op is and takes the owner's lock itself. True when anything changed.
  bool Join(Attempt attempt, FinishedOps* finished,
            absl::FunctionRef<absl::AnyInvocable<void()>(int64_t id)> cancel,
            absl::FunctionRef<WaitRegistry::Describer()> describe = NoDescriber);
  // Takes the op out of the line, if it is still there, and undoes it; it fails as cancelled.
  bool Cancel(int64_t id, FinishedOps* finished);
  // All of them fail so.
  void FailAll(const Status& why, FinishedOps* finished);

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }

 private:
  void Leave(std::list<Attempt>::iterator at, FinishedOps* finished);

  const std::string resource_;
  const Order order_;
  std::list<Attempt> waiting_;
  int64_t next_id_ = 1;
};

}  // namespace millrace
