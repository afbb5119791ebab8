// The static part of a framed plan: the loop of each node, and where its values are stored.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/executor/plan.h"

namespace millrace {

class FramedRun;

class FramedPlan {
 public:
  // INVALID_ARGUMENT for loops that are not properly nested.
  static StatusOr<std::unique_ptr<FramedPlan>> Compile(const Plan& plan);
  ~FramedPlan();

  // The role of a node. The first five only forward values, which the executor does itself, without a kernel.
  enum class Kind : uint8_t { kSwitch, kMerge, kEnter, kExit, kNextIteration, kPlain };

  // The progress of a node in an iteration. Plain data: a new iteration starts with a copy of its frame's counts.
  struct Count {
    int32_t pending = 0;  // inputs that have not arrived, including control inputs; for a Merge, data inputs only
    int32_t pending_control = 0;  // control inputs of a Merge that have not arrived
    bool any_dead = false;
    bool live = false;  // a live input of a Merge has arrived
    bool fired = false;
  };

  struct NodeInfo {
    Kind kind = Kind::kPlain;
    bool passes_on = false;    // only forwards its first input as its first output
    bool is_constant = false;  // an Enter whose value is the same in every iteration
    bool is_loop_merge = false;
    bool needs_index = false;  // a Merge whose output value_index is used
    bool is_fetched = false;
    int frame = 0;         // the frame it runs in
    int child_frame = -1;  // the frame that an Enter opens
    int first_input = 0;   // index into the iteration's input values
    int local = 0;         // index into the iteration's counts
    int first_edge = 0;
    int num_edges = 0;
    int constant = -1;  // index into `constants`
  };
  // An outgoing edge of a node; sorted by output, control edges (output -1) last.
  struct Edge {
    int output;
    int target;    // the target's plan index
    int input;     // index into the iteration's input values
    int local;     // the target's NodeInfo::local
    bool is_last;  // the last consumer of that output, so the value may be moved
    bool to_merge;
  };
  struct Frame {
    std::string name;  // frame_name of the Enter nodes; empty for the root
    uint64_t name_hash = 0;
    int parent = -1;
    int num_enters = 0;  // the frame cannot end before all of them have arrived
    int parallel_iterations = 1;
    int num_inputs = 0;  // the number of input values of all its nodes
    std::vector<Count> counts;
    struct FedInput {
      int input, feed;
    };
    std::vector<FedInput> fed_inputs;
  };
  struct Fetch {
    int node, output, fetch;
  };

  std::vector<Frame> frames;
  std::vector<NodeInfo> info;  // by plan index
  std::vector<Edge> edges;
  std::vector<int> roots;                        // nodes without inputs, in plan order
  std::vector<Fetch> fetches;                    // sorted by node
  std::vector<std::pair<int, int>> fed_fetches;  // (fetch, feed)
  std::vector<Tensor> constants;
  int max_outputs = 1;

 private:
  friend class FramedRun;
  class Compiler;
  // Finished runs, whose memory the next run reuses.
  Mutex mu_;
  std::vector<std::unique_ptr<FramedRun>> idle_ ABSL_GUARDED_BY(mu_);
};

// The id of a frame in rendezvous keys. Both ends of an edge derive it from the frame's name and the iteration of the
// parent in which it was entered.
uint64_t ChildFrameId(uint64_t parent_id, int64_t parent_iteration, uint64_t name_hash);
uint64_t FrameNameHash(absl::string_view name);

}  // namespace millrace
