// Running straight-line plans.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "millrace/executor/plan.h"

namespace millrace {

// What one run of a plan needs; kept by the plan between runs.
struct Plan::RunState {
  std::vector<Tensor> slots;
  std::vector<const Tensor*> inputs;  // scratch: the inputs of the node at work
  std::vector<Tensor> derefs;         // scratch: values behind references
};

// A run that cannot go in plan order on one thread: it has asynchronous kernels or several expensive
// ones. A node starts when the last of its inputs has come; slots are released by counting uses.
class StraightRun {
 public:
  static void Start(Plan* plan, const RunArgs& args, absl::Span<Tensor> fetches,
                    std::unique_ptr<Plan::RunState> state, absl::AnyInvocable<void(Status)> done);

 private:
  struct Scratch;
  struct AsyncNode;

  StraightRun(Plan* plan, const RunArgs& args, absl::Span<Tensor> fetches,
              std::unique_ptr<Plan::RunState> state, absl::AnyInvocable<void(Status)> done);

  // Works until nothing that this thread knows of is ready. May delete this object.
  void Work(std::vector<int> ready);
  // Runs one node; returns false when it will finish later.
  bool RunNode(int index, Scratch& scratch);
  void StartAsync(int index);
  // After a node: releases inputs, appends the nodes that became ready.
  void Finish(int index, const Status& status, std::vector<int>* ready);
  void Fail(const PlanNode& n, const Status& status);
  // One activity (a thread's Work or an asynchronous node) ended; the last one ends the run.
  void EndActivity();

  Plan* const plan_;
  const RunArgs args_;
  const absl::Span<Tensor> fetches_;
  std::unique_ptr<Plan::RunState> state_;
  absl::AnyInvocable<void(Status)> done_;

  std::vector<std::atomic<int>> pending_;
  std::vector<std::atomic<int>> uses_;
  std::atomic<int> activities_{1};
  std::atomic<bool> failed_{false};
  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
