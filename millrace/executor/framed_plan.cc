#include <algorithm>

#include "millrace/executor/framed_run.h"

namespace millrace {
namespace {

using Kind = FramedPlan::Kind;

Kind KindOf(const Node& node) {
  if (node.IsSwitch()) return Kind::kSwitch;
  if (node.IsMerge()) return Kind::kMerge;
  if (node.IsEnter()) return Kind::kEnter;
  if (node.IsExit()) return Kind::kExit;
  if (node.IsNextIteration()) return Kind::kNextIteration;
  return Kind::kPlain;
}

}  // namespace

StatusOr<std::unique_ptr<FramedPlan>> FramedPlan::Compile(const Plan& plan) {
  auto framed = std::make_unique<FramedPlan>();
  const auto& nodes = plan.nodes_;
  const int n = static_cast<int>(nodes.size());
  framed->info.resize(n);
  framed->edges.resize(n);
  framed->frames.push_back({});

  std::vector<int> position(plan.graph_->max_id(), -1);
  for (int i = 0; i < n; ++i) position[nodes[i].node->id()] = i;
  absl::flat_hash_map<int, int> feed_of_slot;
  for (size_t f = 0; f < plan.feed_slots_.size(); ++f) {
    feed_of_slot[plan.feed_slots_[f]] = static_cast<int>(f);
  }

  for (int i = 0; i < n; ++i) {
    NodeInfo& info = framed->info[i];
    const Node& node = *nodes[i].node;
    info.kind = KindOf(node);
    for (int k = 0; k < nodes[i].num_inputs; ++k) {
      const int slot = plan.input_slots_[nodes[i].first_input + k];
      if (auto it = feed_of_slot.find(slot); it != feed_of_slot.end()) {
        framed->fed_inputs.push_back({i, k, it->second});
        continue;
      }
      const Endpoint& source = node.input(k);
      framed->edges[position[source.node->id()]].push_back({source.index, i, k});
      ++info.num_data;
    }
    for (const Node* before : node.control_inputs()) {
      if (position[before->id()] < 0) continue;
      framed->edges[position[before->id()]].push_back({-1, i, -1});
      ++info.num_control;
    }
  }

  // Frames spread along the edges from the nodes that wait for nothing. A node's frame is that of its
  // inputs; an Enter's outputs are in its child frame, an Exit's in the parent.
  std::vector<int> frame(n, -1);
  std::vector<int> queue;
  for (int i = 0; i < n; ++i) {
    if (framed->info[i].num_data == 0 && framed->info[i].num_control == 0) {
      frame[i] = 0;
      queue.push_back(i);
    }
  }
  absl::flat_hash_map<std::pair<int, std::string>, int> known;
  for (size_t head = 0; head < queue.size(); ++head) {
    const int i = queue[head];
    const Node& node = *nodes[i].node;
    NodeInfo& info = framed->info[i];
    int out_frame = frame[i];
    if (info.kind == Kind::kEnter) {
      MR_ASSIGN_OR_RETURN(const std::string name, node.Attr<std::string>("frame_name"));
      const auto [it, is_new] =
          known.emplace(std::make_pair(frame[i], name), static_cast<int>(framed->frames.size()));
      if (is_new) {
        Frame f;
        f.name = name;
        f.parent = frame[i];
        f.parallel_iterations =
            static_cast<int>(std::max<int64_t>(1, node.AttrOr<int64_t>("parallel_iterations", 10)));
        framed->frames.push_back(std::move(f));
      }
      info.child_frame = out_frame = it->second;
      info.is_constant = node.AttrOr<bool>("is_constant", false);
      ++framed->frames[out_frame].num_enters;
    } else if (info.kind == Kind::kExit) {
      out_frame = framed->frames[frame[i]].parent;
      if (out_frame < 0) {
        return InvalidArgument("node ", node.name(), " (", node.type(), ") leaves a loop that it is not in");
      }
    }
    for (const Edge& edge : framed->edges[i]) {
      if (frame[edge.target] < 0) {
        frame[edge.target] = out_frame;
        queue.push_back(edge.target);
      } else if (frame[edge.target] != out_frame) {
        return InvalidArgument("node ", nodes[edge.target].node->name(), " (",
                               nodes[edge.target].node->type(), ") takes inputs from two loop frames: '",
                               framed->frames[frame[edge.target]].name, "' and '",
                               framed->frames[out_frame].name, "' (from ", node.name(), ")");
      }
    }
  }
  for (int i = 0; i < n; ++i) {
    if (frame[i] < 0) {
      return InvalidArgument("node ", nodes[i].node->name(), " (", nodes[i].node->type(),
                             ") can never run: its inputs wait for each other");
    }
    NodeInfo& info = framed->info[i];
    Frame& f = framed->frames[frame[i]];
    info.frame = frame[i];
    info.local = f.num_nodes++;
    info.first_input = f.num_inputs;
    f.num_inputs += nodes[i].num_inputs;
    f.nodes.push_back(i);
  }
  return framed;
}

}  // namespace millrace
