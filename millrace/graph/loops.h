// The loops (frames) of a graph: which nodes run in which, and the execution order within each.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/graph.h"

namespace millrace {

// A loop built from Enter, Merge, Switch, NextIteration and Exit.
struct Loop {
  std::string frame_name;
  int parent = -1;
  std::vector<Node*> enters;  // they run in the parent; their outputs are in the loop
  std::vector<Node*> exits;   // they run in the loop; their outputs are in the parent
  Node* condition = nullptr;  // LoopCond

  // A loop variable: a Merge of Enter and NextIteration, followed by a Switch. `exit` may be null.
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

  // INVALID_ARGUMENT, naming the node, if its inputs come from loops of which neither contains the other.
  static StatusOr<LoopForest> Find(const Graph& graph);

  const std::vector<Loop>& loops() const { return loops_; }
  const Loop& loop(int i) const { return loops_[i]; }
  // The loop that the node runs in: for an Enter the outer loop, for an Exit the loop that it leaves.
  int LoopOf(const Node* node) const { return home_[node->id()]; }
  // The loop that its outputs are used in.
  int OutputLoopOf(const Node* node) const;
  // Records a node that was added to that loop.
  void Add(const Node* node, int loop);

  // The contents of one loop in topological order: nodes, and whole inner loops as single items. Enters and Exits
  // belong to the loop that they enter or leave.
  struct Item {
    Node* node = nullptr;  // or
    int loop = -1;
  };
  StatusOr<std::vector<Item>> Order(const Graph& graph, int loop) const;

 private:
  Status FindVariables(const Graph& graph);
  // The loop directly within `outer` that contains `loop`; kNone if `loop` is not within `outer`.
  int ChildOf(int outer, int loop) const;

  std::vector<Loop> loops_;
  std::vector<int> home_;  // by id
  absl::flat_hash_map<const Node*, int> entered_;
};

// The Switch decisions under which each value of one loop is alive. Path 0 is "always".
class CondPaths {
 public:
  struct Step {
    int outer = -1;
    Endpoint selector;  // the predicate of the Switch
    int side = 0;
    const Node* gate = nullptr;  // a Switch with that predicate
    int depth = 0;
  };

  CondPaths(const LoopForest& forest, const std::vector<LoopForest::Item>& order);
  int PathOf(const Endpoint& e) const;
  const Step& step(int path) const { return steps_[path]; }
  // Records the path of a node that was added.
  void Add(const Node* node, int path) { path_[node] = path; }

 private:
  int Deepest(int a, int b) const { return steps_[a].depth >= steps_[b].depth ? a : b; }
  int Common(int a, int b) const;
  int Extend(int path, const Node* gate, int side);

  std::vector<Step> steps_;
  absl::flat_hash_map<const Node*, int> path_;  // of the node itself; a Switch's outputs are one step deeper
  absl::flat_hash_map<std::tuple<int, Endpoint, int>, int> known_;
  absl::flat_hash_map<std::pair<const Node*, int>, int> sides_;
};

}  // namespace millrace
