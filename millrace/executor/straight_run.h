// Runs straight-line plans: no conditionals or loops, but asynchronous kernels.
//
// One thread at a time owns a run. Only the owner accesses the counts, the slots' uses and the list of ready nodes, so
// these need no locks or atomic operations. A node that finishes on another thread (an asynchronous kernel, or one that
// was given to the pool) is posted to the owner. When nothing is ready, the owner leaves, which suspends the run; a
// thread that posts to a run without an owner becomes its owner and continues it.
//
// The owner also gives up the run before a kernel that may take long, if other nodes are outstanding: the thread on
// which one of them finishes meanwhile then continues the run.
//
// A _Recv may receive a dead value, of a branch in another part that was not taken. Nodes that depend on it do not run
// and are dead as well; a _Send forwards deadness to the receiver, and a ControlTrigger runs and stops it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "millrace/executor/kernel_execution.h"
#include "millrace/executor/straight_plan.h"

namespace millrace {

// One run. When it ends, the plan keeps its memory for the next run.
class StraightRun {
 public:
  static void Start(const Plan* plan, StraightPlan* straight, const RunArgs& args, absl::Span<Tensor> fetches,
                    absl::AnyInvocable<void(Status)> done);
  ~StraightRun();

 private:
  // A node that was started and will be posted when it finishes.
  struct Outstanding {
    explicit Outstanding(StraightRun* of) : run(of) {}
    StraightRun* const run;
    int index = 0;
    uint64_t forwardable = 0;
    Outstanding* next = nullptr;
    KernelExecution execution;
  };

  StraightRun(const Plan* plan, StraightPlan* straight);
  // A marker that is not a valid node.
  static Outstanding* Nobody() { return reinterpret_cast<Outstanding*>(alignof(Outstanding)); }

  // Called by the owner: works until nothing is ready or another thread owns the run. May delete this object.
  void Work();
  // Returns false if this thread no longer owns the run.
  bool RunNode(int index);
  void RunHere(int index);
  // True if nothing new may start: the run has failed, or it fails now, at this node, because the step was cancelled.
  bool IsOver(int index);
  void StartAsync(int index);
  void GiveToPool(int index);
  // Runs the node while other threads may own the run. Returns whether this thread owns the run afterwards.
  bool RunApart(int index);

  // True if it is worthwhile to let other threads work on the run while this node runs.
  bool MayTakeLong(int index) const;
  // Sets the node's inputs; returns the bits of those whose memory it may reuse.
  uint64_t SetInputs(const PlanNode& n, KernelExecution& execution) const;
  Outstanding* NewOutstanding(int index);

  // Called by a thread that does not own the run: the node has finished. Returns true if this thread owns the run now;
  // otherwise the run may have ended already.
  bool Post(Outstanding* node, const Status& status);
  // Gives up ownership. Returns false if something was posted, in which case this thread still owns the run.
  bool Leave();
  void TakePosted();
  // After a node has run: releases its inputs and adds the nodes that became ready.
  void Finish(int index);

  // May be called by the owner, and by a thread whose node is outstanding.
  void Fail(const Status& status);
  void RecordConstants();
  void End();

  const Plan* const plan_;
  StraightPlan* const straight_;
  RunArgs args_;
  absl::Span<Tensor> fetches_;
  absl::AnyInvocable<void(Status)> done_;

  // Accessed by the owner only.
  std::vector<Tensor> slots_;
  std::vector<int> pending_;  // by plan index
  std::vector<int> uses_;     // by slot
  std::vector<char> dead_;    // by plan index: an input or control input is dead
  bool any_dead_ = false;
  std::vector<int> ready_;   // the last runs first
  int num_outstanding_ = 0;  // nodes that were started and not yet taken from `posted_`
  std::vector<Outstanding*> idle_outstanding_;
  std::vector<std::unique_ptr<Outstanding>> all_outstanding_;
  KernelExecution execution_;

  // Finished nodes, most recent first; Nobody() if nothing was posted and no thread owns the run.
  std::atomic<Outstanding*> posted_{nullptr};
  std::atomic<bool> failed_{false};
  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
