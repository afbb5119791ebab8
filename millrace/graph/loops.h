// The loops of a graph: which nodes run in which, and in what order things happen within one.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/graph.h"

namespace millrace {

// One loop as Enter, Merge, Switch, NextIteration and Exit make it.
struct Loop {
  std::string frame_name;
  int parent = -1;
  std::vector<Node*> enters;  // they run in the parent; their outputs are in the loop
  std::vector<Node*> exits;   // they run in the loop; their outputs are in the parent
  Node* condition = nullptr;  // LoopCond

  // A value that goes round: Merge of Enter and NextIteration, then a Switch. `exit` may be null.
  struct Variable {
    Node* enter = nullptr;
    Node* merge = nullptr;
    Node* next = nullptr;
    Node* gate = nullptr;  // the Switch
    Node* exit = nullptr;
  };
  std::vector<Variable> variables;
};

class LoopForest {
 public:
  static constexpr int kRoot = -1;

  // INVALID_ARGUMENT names a node whose inputs are of loops that do not contain one another.
  static StatusOr<LoopForest> Find(const Graph& graph);

  const std::vector<Loop>& loops() const { return loops_; }
  const Loop& loop(int i) const { return loops_[i]; }
  // Where the node runs: an Enter in the loop around, an Exit in the loop that it leaves.
  int LoopOf(const Node* node) const { return home_[node->id()]; }
  // Where its outputs are used.
  int OutputLoopOf(const Node* node) const;
  // A node that was added to that loop.
  void Add(const Node* node, int loop);
  bool Knows(const Node* node) const { return node->id() < static_cast<int>(home_.size()); }

  // What happens in one loop: nodes and whole loops within it, each after what it needs. Enters and Exits belong to the
  // loop that they border.
  struct Item {
    Node* node = nullptr;  // or
    int loop = -1;
  };
  StatusOr<std::vector<Item>> Order(const Graph& graph, int loop) const;

 private:
  Status FindVariables(const Graph& graph);
  // The loop directly within `outer` that contains `loop`; kNone when `loop` is not within it.
  int ChildOf(int outer, int loop) const;

  std::vector<Loop> loops_;
  std::vector<int> home_;  // by id
  absl::flat_hash_map<const Node*, int> entered_;
};

// Under which choices of Switches a value exists, within one loop. Path 0 is "always".
class CondPaths {
 public:
  struct Step {
    int outer = -1;
    Endpoint selector;     // what the Switch was decided by
    int side = 0;
    const Node* gate = nullptr;  // a Switch of that choice
    int depth = 0;
  };

  CondPaths(const LoopForest& forest, const std::vector<LoopForest::Item>& order);
  int PathOf(const Endpoint& e) const;
  const Step& step(int path) const { return steps_[path]; }
  // A node that was added on the path of another tensor.
  void Add(const Node* node, int path) { path_[node] = path; }

 private:
  int Deepest(int a, int b) const { return steps_[a].depth >= steps_[b].depth ? a : b; }
  int Common(int a, int b) const;
  int Extend(int path, const Node* gate, int side);

  std::vector<Step> steps_;
  absl::flat_hash_map<const Node*, int> path_;  // of the node; a Switch's outputs are one step further
  absl::flat_hash_map<std::tuple<int, Endpoint, int>, int> known_;
  absl::flat_hash_map<std::pair<const Node*, int>, int> sides_;
};

}  // namespace millrace
