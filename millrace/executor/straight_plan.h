// The static part of a straight-line plan: the successors of each node, and the number of uses of each slot.
#pragma once

#include <memory>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/executor/plan.h"

namespace millrace {

class StraightRun;

class StraightPlan {
 public:
  // The slots and constants of `plan` must have been compiled.
  static std::unique_ptr<StraightPlan> Compile(const Plan& plan);
  ~StraightPlan();

  struct NodeInfo {
    // The range of `successors` with the nodes that wait for this one, one entry per edge.
    int first_successor = 0;
    int num_successors = 0;
    // Whether to let other threads work on the run while this node runs: it is expensive, it sends (the receiver may
    // continue within the call), or it reads strings. Other kernels are judged by the size of their inputs at run time.
    bool may_take_long = false;
  };

  std::vector<NodeInfo> info;  // by plan index
  // The last of a node's successors runs first: sends, asynchronous and expensive nodes, then the others in plan order.
  std::vector<int> successors;
  // The number of incoming edges of each node, except for those from nodes that never run (constants, and NoOps without
  // inputs).
  std::vector<int> pending;
  // The nodes that run and have no inputs to wait for. The asynchronous ones are started first, so that their waits
  // overlap; of the others the last runs first.
  std::vector<int> async_roots, roots;
  // The number of inputs and fetches that use each slot; one more for a constant's slot, so that it is never released.
  std::vector<int> uses;

 private:
  friend class StraightRun;
  // Finished runs, whose memory the next run reuses.
  Mutex mu_;
  std::vector<std::unique_ptr<StraightRun>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
