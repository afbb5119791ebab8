// What is known before a framed run starts: which loop each node belongs to and where its values lie.
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
  static StatusOr<std::unique_ptr<FramedPlan>> Compile(const Plan& plan);
  ~FramedPlan();

  // What a node does for the executor. The first five only hand values on, and the executor does it itself.
  enum class Kind : uint8_t { kSwitch, kMerge, kEnter, kExit, kNextIteration, kPlain };

  // How far a node has come in an iteration. Plain data: an iteration starts as a copy of its frame's.
  struct Count {
    int32_t pending = 0;          // edges that have not come; for a Merge, data edges only
    int32_t pending_control = 0;  // for a Merge
    bool any_dead = false;
    bool live = false;            // a Merge that has a live input
    bool fired = false;
  };

  struct NodeInfo {
    Kind kind = Kind::kPlain;
    bool passes_on = false;    // gives its first input as its first output, and nothing else
    bool is_constant = false;  // an Enter whose value is the same in every iteration
    bool is_loop_merge = false;
    bool runs_dead = false;    // _Send, which tells of it, and ControlTrigger, which does not mind
    bool gives_death_on = true;
    bool needs_index = false;  // a Merge of which somebody wants to know which input it was
    bool is_fetched = false;
    int frame = 0;             // where it runs
    int child_frame = -1;      // of an Enter
    int first_input = 0;       // within the iteration's input values
    int local = 0;             // within the iteration's counts
    int first_edge = 0;
    int num_edges = 0;
    int constant = -1;         // into `constants`
  };
  // An edge out of a node, in the order of outputs, control edges (output -1) last.
  struct Edge {
    int output;
    int target;       // plan index
    int input;        // within the iteration's input values
    int local;        // the target's
    bool is_last;     // nobody else takes that output: it may be moved
    bool to_merge;
  };
  struct Frame {
    std::string name;         // frame_name of the Enter nodes; empty for the root
    uint64_t name_hash = 0;
    int parent = -1;
    int num_enters = 0;       // all of them arrive before the frame may end
    int parallel_iterations = 1;
    int num_inputs = 0;       // input values of all its nodes
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
  std::vector<int> roots;      // nodes that wait for nothing, in plan order
  std::vector<Fetch> fetches;  // sorted by node
  std::vector<std::pair<int, int>> fed_fetches;  // (fetch, feed)
  std::vector<Tensor> constants;
  int max_outputs = 1;

 private:
  friend class FramedRun;
  // Runs that have ended, with their memory, for the next one.
  Mutex mu_;
  std::vector<std::unique_ptr<FramedRun>> idle_ ABSL_GUARDED_BY(mu_);
};

// The number that names a frame on the wire: both sides of an edge derive it from the frame's name and the
// iteration of the parent in which it was entered.
uint64_t ChildFrameId(uint64_t parent_id, int64_t parent_iteration, uint64_t name_hash);
uint64_t FrameNameHash(absl::string_view name);

}  // namespace millrace
