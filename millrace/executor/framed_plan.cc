#include "millrace/executor/framed_plan.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "millrace/executor/framed_run.h"
#include "millrace/executor/kernel_execution.h"

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

bool PassesOn(const Node& node, Kind kind) {
  return kind == Kind::kEnter || kind == Kind::kExit || kind == Kind::kNextIteration ||
         node.op().control_kind == ControlKind::kLoopCond || node.is_type("Identity");
}

uint64_t Combine(uint64_t a, uint64_t b) { return a ^ (b + 0x9e3779b97f4a7800 + (a << 10) + (a >> 4)); }

}  // namespace

// MurmurHash64A: what TensorFlow names loop frames with, so the numbers must agree on the wire.
uint64_t FrameNameHash(absl::string_view name) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  uint64_t h = 0xDECAFCAFFEull ^ (name.size() * kMul);
  size_t i = 0;
  for (; i + 8 <= name.size(); i += 8) {
    uint64_t k;
    std::memcpy(&k, name.data() + i, 8);
    k *= kMul;
    k ^= k >> 47;
    k *= kMul;
    h = (h ^ k) * kMul;
  }
  if (i < name.size()) {
    uint64_t tail = 0;
    std::memcpy(&tail, name.data() + i, name.size() - i);
    h = (h ^ tail) * kMul;
  }
  h ^= h >> 47;
  h *= kMul;
  return h ^ (h >> 47);
}

uint64_t ChildFrameId(uint64_t parent_id, int64_t parent_iteration, uint64_t name_hash) {
  return Combine(parent_id, Combine(static_cast<uint64_t>(parent_iteration), name_hash));
}

FramedPlan::~FramedPlan() = default;

// The phases of Compile, in order.
class FramedPlan::Compiler {
 public:
  Compiler(const Plan& plan, FramedPlan* framed)
      : plan_(plan),
        nodes_(plan.nodes_),
        framed_(*framed),
        position_(plan.graph_->max_id(), -1),
        counts_(nodes_.size()),
        edges_(nodes_.size()),
        frames_(nodes_.size(), -1) {
    framed_.info.resize(nodes_.size());
    framed_.frames.push_back({});
    for (size_t i = 0; i < nodes_.size(); ++i) position_[nodes_[i].node->id()] = static_cast<int>(i);
    for (size_t f = 0; f < plan.feed_slots_.size(); ++f) feed_of_slot_[plan.feed_slots_[f]] = static_cast<int>(f);
  }

  Status Run() {
    for (int i = 0; i < num_nodes(); ++i) {
      DescribeNode(i);
      ConnectNode(i);
    }
    MR_RETURN_IF_ERROR(SpreadFrames());
    MR_RETURN_IF_ERROR(LayOutFrames());
    for (int i = 0; i < num_nodes(); ++i) ListEdges(i);
    ListFetches();
    return absl::OkStatus();
  }

 private:
  struct Fed {
    int node, input, feed;
  };

  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  void DescribeNode(int i);
  // Adds the node's incoming edges to their sources, and counts them.
  void ConnectNode(int i);
  // Assigns a frame to each node by propagating frames along the edges from the nodes without inputs.
  Status SpreadFrames();
  // The frame of the consumers of the node's outputs: the child frame for an Enter, the parent for an Exit.
  StatusOr<int> FrameOfOutputs(int i);
  StatusOr<int> ChildFrame(int enter);
  // Assigns each node its indices in the iterations of its frame.
  Status LayOutFrames();
  void ListEdges(int i);
  void ListFetches();

  const Plan& plan_;
  const std::vector<PlanNode>& nodes_;
  FramedPlan& framed_;
  std::vector<int> position_;  // plan index by node id
  absl::flat_hash_map<int, int> feed_of_slot_;
  std::vector<Fed> fed_;
  // By plan index.
  std::vector<Count> counts_;
  std::vector<std::vector<Edge>> edges_;  // outgoing edges
  std::vector<int> frames_;
  absl::flat_hash_map<std::pair<int, std::string>, int> known_frames_;  // by parent and name
};

void FramedPlan::Compiler::DescribeNode(int i) {
  const PlanNode& n = nodes_[i];
  NodeInfo& info = framed_.info[i];
  const bool on_cpu = n.device->type() == "CPU";
  info.kind = KindOf(*n.node);
  info.passes_on = on_cpu && n.deref == 0 && PassesOn(*n.node, info.kind);
  for (const Endpoint& in : n.node->inputs()) {
    info.is_loop_merge |= info.kind == Kind::kMerge && in.node->IsNextIteration();
  }
  framed_.max_outputs = std::max(framed_.max_outputs, n.num_outputs);
  if (!on_cpu || !n.node->is_type("Const")) return;
  StatusOr<Tensor> value = ConstantValue(n);
  if (!value.ok()) return;  // the error is reported when it runs
  info.constant = static_cast<int>(framed_.constants.size());
  framed_.constants.push_back(*std::move(value));
}

void FramedPlan::Compiler::ConnectNode(int i) {
  const Node& node = *nodes_[i].node;
  const bool is_merge = framed_.info[i].kind == Kind::kMerge;
  Count& count = counts_[i];
  for (int k = 0; k < nodes_[i].num_inputs; ++k) {
    if (auto it = feed_of_slot_.find(plan_.input_slots_[nodes_[i].first_input + k]); it != feed_of_slot_.end()) {
      fed_.push_back({i, k, it->second});
      count.live |= is_merge;
      continue;
    }
    const Endpoint& source = node.input(k);
    edges_[position_[source.node->id()]].push_back({source.index, i, k, 0, false, is_merge});
    ++count.pending;
  }
  int control = 0;
  for (const Node* before : node.control_inputs()) {
    if (position_[before->id()] < 0) continue;
    edges_[position_[before->id()]].push_back({-1, i, -1, 0, false, is_merge});
    ++control;
  }
  if (count.pending + control == 0) framed_.roots.push_back(i);
  (is_merge ? count.pending_control : count.pending) += control;
}

StatusOr<int> FramedPlan::Compiler::ChildFrame(int enter) {
  const Node& node = *nodes_[enter].node;
  MR_ASSIGN_OR_RETURN(const std::string name, node.Attr<std::string>("frame_name"));
  const auto [it, is_new] =
      known_frames_.emplace(std::make_pair(frames_[enter], name), static_cast<int>(framed_.frames.size()));
  if (is_new) {
    Frame f;
    f.name = name;
    f.name_hash = FrameNameHash(name);
    f.parent = frames_[enter];
    f.parallel_iterations =
        static_cast<int>(std::clamp<int64_t>(node.AttrOr<int64_t>("parallel_iterations", 10), 1, 1 << 20));
    framed_.frames.push_back(std::move(f));
  }
  NodeInfo& info = framed_.info[enter];
  info.child_frame = it->second;
  info.is_constant = node.AttrOr<bool>("is_constant", false);
  ++framed_.frames[it->second].num_enters;
  return it->second;
}

StatusOr<int> FramedPlan::Compiler::FrameOfOutputs(int i) {
  const Kind kind = framed_.info[i].kind;
  if (kind == Kind::kEnter) return ChildFrame(i);
  if (kind != Kind::kExit) return frames_[i];
  const int parent = framed_.frames[frames_[i]].parent;
  if (parent >= 0) return parent;
  const Node& node = *nodes_[i].node;
  return InvalidArgument("node ", node.name(), " (", node.type(), ") leaves a loop that it is not in");
}

Status FramedPlan::Compiler::SpreadFrames() {
  std::vector<int> queue = framed_.roots;
  for (const int i : queue) frames_[i] = 0;
  for (size_t head = 0; head < queue.size(); ++head) {
    const int i = queue[head];
    MR_ASSIGN_OR_RETURN(const int frame, FrameOfOutputs(i));
    for (const Edge& edge : edges_[i]) {
      if (frames_[edge.target] < 0) {
        frames_[edge.target] = frame;
        queue.push_back(edge.target);
      } else if (frames_[edge.target] != frame) {
        const Node& target = *nodes_[edge.target].node;
        return InvalidArgument("node ", target.name(), " (", target.type(),
                               ") has inputs from different frames: it takes inputs from two loop frames, '",
                               framed_.frames[frames_[edge.target]].name, "' and '", framed_.frames[frame].name,
                               "' (from ", nodes_[i].node->name(), ")");
      }
    }
  }
  return absl::OkStatus();
}

Status FramedPlan::Compiler::LayOutFrames() {
  for (int i = 0; i < num_nodes(); ++i) {
    if (frames_[i] < 0) {
      return InvalidArgument("node ", nodes_[i].node->name(), " (", nodes_[i].node->type(),
                             ") can never run: its inputs wait for each other");
    }
    NodeInfo& info = framed_.info[i];
    Frame& f = framed_.frames[frames_[i]];
    info.frame = frames_[i];
    info.local = static_cast<int>(f.counts.size());
    info.first_input = f.num_inputs;
    f.num_inputs += nodes_[i].num_inputs;
    f.counts.push_back(counts_[i]);
  }
  for (const Fed& f : fed_) {
    const NodeInfo& info = framed_.info[f.node];
    framed_.frames[info.frame].fed_inputs.push_back({info.first_input + f.input, f.feed});
  }
  return absl::OkStatus();
}

void FramedPlan::Compiler::ListEdges(int i) {
  NodeInfo& info = framed_.info[i];
  std::vector<Edge>& out = edges_[i];
  std::stable_sort(out.begin(), out.end(), [](const Edge& a, const Edge& b) {
    return static_cast<unsigned>(a.output) < static_cast<unsigned>(b.output);
  });
  info.first_edge = static_cast<int>(framed_.edges.size());
  info.num_edges = static_cast<int>(out.size());
  for (size_t e = 0; e < out.size(); ++e) {
    Edge edge = out[e];
    const NodeInfo& target = framed_.info[edge.target];
    edge.local = target.local;
    edge.is_last = e + 1 == out.size() || out[e + 1].output != edge.output;
    if (edge.input >= 0) edge.input += target.first_input;
    info.needs_index |= edge.output == 1;
    framed_.edges.push_back(edge);
  }
}

void FramedPlan::Compiler::ListFetches() {
  for (size_t f = 0; f < plan_.fetches_.size(); ++f) {
    if (auto it = feed_of_slot_.find(plan_.fetch_slots_[f]); it != feed_of_slot_.end()) {
      framed_.fed_fetches.emplace_back(static_cast<int>(f), it->second);
      continue;
    }
    const int node = position_[plan_.fetches_[f].node->id()];
    framed_.info[node].is_fetched = true;
    framed_.info[node].needs_index |= plan_.fetches_[f].index == 1;
    framed_.fetches.push_back({node, plan_.fetches_[f].index, static_cast<int>(f)});
  }
  std::sort(framed_.fetches.begin(), framed_.fetches.end(),
            [](const Fetch& a, const Fetch& b) { return a.node < b.node; });
}

StatusOr<std::unique_ptr<FramedPlan>> FramedPlan::Compile(const Plan& plan) {
  auto framed = std::make_unique<FramedPlan>();
  MR_RETURN_IF_ERROR(Compiler(plan, framed.get()).Run());
  return framed;
}

}  // namespace millrace
