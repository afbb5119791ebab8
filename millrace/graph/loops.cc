#include "millrace/graph/loops.h"

namespace millrace {

StatusOr<LoopForest> LoopForest::Find(const Graph& graph) {
  LoopForest forest;
  forest.home_.assign(graph.max_id(), kRoot);
  MR_ASSIGN_OR_RETURN(const std::vector<Node*> order, TopologicalOrder(graph));
  absl::flat_hash_map<std::pair<int, std::string>, int> known;
  const auto depth = [&](int loop) {
    int d = 0;
    for (; loop != kRoot; loop = forest.loops_[loop].parent) ++d;
    return d;
  };
  for (Node* node : order) {
    int home = kRoot;
    const auto see = [&](const Node* source) -> Status {
      if (source->is_detached() || (source->IsNextIteration() && node->IsMerge())) return absl::OkStatus();
      const int loop = forest.OutputLoopOf(source);
      if (loop == home) return absl::OkStatus();
      const int inner = depth(loop) > depth(home) ? loop : home;
      const int outer = inner == loop ? home : loop;
      if (outer != kRoot && forest.ChildOf(outer, inner) == kRoot) {
        return InvalidArgument("{{node ", node->name(), "}} (op ", node->type(), ") takes inputs from two loops, '",
                               forest.loops_[loop].frame_name, "' and '", forest.loops_[home].frame_name, "'");
      }
      home = inner;
      return absl::OkStatus();
    };
    for (const Endpoint& e : node->inputs()) MR_RETURN_IF_ERROR(see(e.node));
    for (const Node* before : node->control_inputs()) MR_RETURN_IF_ERROR(see(before));
    forest.home_[node->id()] = home;
    if (node->IsEnter()) {
      MR_ASSIGN_OR_RETURN(std::string name, node->Attr<std::string>("frame_name"));
      const auto [it, is_new] = known.emplace(std::make_pair(home, name), static_cast<int>(forest.loops_.size()));
      if (is_new) {
        Loop loop;
        loop.frame_name = std::move(name);
        loop.parent = home;
        forest.loops_.push_back(std::move(loop));
      }
      forest.entered_[node] = it->second;
      forest.loops_[it->second].enters.push_back(node);
    } else if (node->IsExit()) {
      if (home == kRoot)
        return InvalidArgument("{{node ", node->name(), "}} (op ", node->type(), ") leaves a loop that it is not in");
      forest.loops_[home].exits.push_back(node);
    } else if (node->op().control_kind == ControlKind::kLoopCond && home != kRoot) {
      forest.loops_[home].condition = node;
    }
  }
  MR_RETURN_IF_ERROR(forest.FindVariables(graph));
  return forest;
}

int LoopForest::OutputLoopOf(const Node* node) const {
  if (node->IsEnter()) return entered_.at(node);
  const int home = home_[node->id()];
  return node->IsExit() && home != kRoot ? loops_[home].parent : home;
}

void LoopForest::Add(const Node* node, int loop) {
  if (node->id() >= static_cast<int>(home_.size())) home_.resize(node->id() + 1, kRoot);
  home_[node->id()] = loop;
}

int LoopForest::ChildOf(int outer, int loop) const {
  while (loop != kRoot && loops_[loop].parent != outer) loop = loops_[loop].parent;
  return loop;
}

Status LoopForest::FindVariables(const Graph& graph) {
  if (loops_.empty()) return absl::OkStatus();
  const auto consumers = ConsumersById(graph);
  for (Node* node : graph.nodes()) {
    if (!node->IsMerge()) continue;
    Loop::Variable variable;
    variable.merge = node;
    for (const Endpoint& e : node->inputs()) {
      if (e.node->IsEnter()) variable.enter = e.node;
      if (e.node->IsNextIteration()) variable.next = e.node;
    }
    if (variable.enter == nullptr || variable.next == nullptr) continue;
    for (const Consumer& c : consumers[node->id()]) {
      if (c.slot == 0 && c.node->IsSwitch() && c.node->input(1).node->op().control_kind == ControlKind::kLoopCond) {
        variable.gate = c.node;
      }
    }
    if (variable.gate != nullptr) {
      for (const Consumer& c : consumers[variable.gate->id()]) {
        if (c.slot == 0 && c.node->IsExit()) variable.exit = c.node;
      }
    }
    loops_[home_[node->id()]].variables.push_back(variable);
  }
  return absl::OkStatus();
}

StatusOr<std::vector<LoopForest::Item>> LoopForest::Order(const Graph& graph, int loop) const {
  // Item numbers: nodes first, then loops.
  std::vector<Item> items;
  absl::flat_hash_map<const Node*, int> item_of;
  absl::flat_hash_map<int, int> item_of_loop;
  const auto item = [&](Node* node) {
    // -1 for nodes outside the loop.
    int at = home_[node->id()];
    if (node->IsEnter()) at = entered_.at(node);
    if (at == loop) {
      if (node->IsEnter() || node->IsExit()) return -1;
      const auto [it, is_new] = item_of.emplace(node, static_cast<int>(items.size()));
      if (is_new) items.push_back({node, -1});
      return it->second;
    }
    const int child = at == kRoot ? kRoot : ChildOf(loop, at);
    if (child == kRoot) return -1;
    const auto [it, is_new] = item_of_loop.emplace(child, static_cast<int>(items.size()));
    if (is_new) items.push_back({nullptr, child});
    return it->second;
  };
  std::vector<std::pair<int, int>> edges;
  for (Node* node : graph.nodes()) {
    const int to = item(node);
    if (to < 0) continue;
    const auto edge = [&](Node* source) {
      if (source->is_detached() || (source->IsNextIteration() && node->IsMerge())) return;
      const int from = item(source);
      if (from >= 0 && from != to) edges.emplace_back(from, to);
    };
    for (const Endpoint& e : node->inputs()) edge(e.node);
    for (Node* before : node->control_inputs()) edge(before);
  }
  std::vector<int> pending(items.size(), 0);
  std::vector<std::vector<int>> after(items.size());
  for (const auto& [from, to] : edges) {
    ++pending[to];
    after[from].push_back(to);
  }
  std::vector<int> queue;
  for (size_t i = 0; i < items.size(); ++i) {
    if (pending[i] == 0) queue.push_back(static_cast<int>(i));
  }
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const int next : after[queue[head]]) {
      if (--pending[next] == 0) queue.push_back(next);
    }
  }
  if (queue.size() != items.size()) {
    return InvalidArgument("an input of a loop depends on an output of the same loop");
  }
  std::vector<Item> order;
  for (const int i : queue) order.push_back(items[i]);
  return order;
}

CondPaths::CondPaths(const LoopForest& forest, const std::vector<LoopForest::Item>& order) {
  steps_.push_back({});
  for (const LoopForest::Item& item : order) {
    int path = 0;
    if (item.node == nullptr) {
      for (const Node* enter : forest.loop(item.loop).enters) {
        path = Deepest(path, PathOf(enter->input(0)));
        for (const Node* before : enter->control_inputs())
          path = Deepest(path, PathOf({const_cast<Node*>(before), -1}));
      }
      for (const Node* exit : forest.loop(item.loop).exits) path_[exit] = path;
      continue;
    }
    const Node* node = item.node;
    if (node->IsMerge()) {
      bool first = true;
      for (const Endpoint& e : node->inputs()) {
        if (e.node->IsNextIteration()) continue;
        path = first ? PathOf(e) : Common(path, PathOf(e));
        first = false;
      }
    } else {
      for (const Endpoint& e : node->inputs()) path = Deepest(path, PathOf(e));
    }
    for (Node* before : node->control_inputs()) path = Deepest(path, PathOf({before, -1}));
    path_[node] = path;
    const bool decides = node->IsSwitch() && node->input(1).node->op().control_kind != ControlKind::kLoopCond;
    for (int side = 0; decides && side < node->num_outputs(); ++side) {
      sides_[{node, side}] = Extend(path, node, side);
    }
  }
}

int CondPaths::PathOf(const Endpoint& e) const {
  if (const auto it = sides_.find({e.node, e.index}); it != sides_.end()) return it->second;
  const auto it = path_.find(e.node);
  return it == path_.end() ? 0 : it->second;
}

int CondPaths::Common(int a, int b) const {
  while (a != b) {
    int& deeper = steps_[a].depth >= steps_[b].depth ? a : b;
    deeper = steps_[deeper].outer;
  }
  return a;
}

int CondPaths::Extend(int path, const Node* gate, int side) {
  const Endpoint selector = gate->input(1);
  const auto [it, is_new] = known_.emplace(std::make_tuple(path, selector, side), static_cast<int>(steps_.size()));
  if (is_new) steps_.push_back({path, selector, side, gate, steps_[path].depth + 1});
  return it->second;
}

}  // namespace millrace
