#include "millrace/executor/framed_plan.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
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

StatusOr<std::unique_ptr<FramedPlan>> FramedPlan::Compile(const Plan& plan) {
  auto framed = std::make_unique<FramedPlan>();
  const auto& nodes = plan.nodes_;
  const int n = static_cast<int>(nodes.size());
  framed->info.resize(n);
  framed->frames.push_back({});

  std::vector<int> position(plan.graph_->max_id(), -1);
  for (int i = 0; i < n; ++i) position[nodes[i].node->id()] = i;
  absl::flat_hash_map<int, int> feed_of_slot;
  for (size_t f = 0; f < plan.feed_slots_.size(); ++f) feed_of_slot[plan.feed_slots_[f]] = static_cast<int>(f);

  struct Fed {
    int node, input, feed;
  };
  std::vector<Fed> fed;
  std::vector<Count> counts(n);
  std::vector<std::vector<Edge>> out(n);
  for (int i = 0; i < n; ++i) {
    NodeInfo& info = framed->info[i];
    const Node& node = *nodes[i].node;
    const bool on_cpu = nodes[i].device->type() == "CPU";
    info.kind = KindOf(node);
    info.passes_on = on_cpu && nodes[i].deref == 0 && PassesOn(node, info.kind);
    info.runs_dead = node.is_type("_Send") || node.is_type("_HostSend") || node.is_type("ControlTrigger");
    info.gives_death_on = !node.is_type("ControlTrigger");
    for (const Endpoint& in : node.inputs()) info.is_loop_merge |= info.kind == Kind::kMerge && in.node->IsNextIteration();
    framed->max_outputs = std::max(framed->max_outputs, nodes[i].num_outputs);
    int control = 0;
    for (int k = 0; k < nodes[i].num_inputs; ++k) {
      if (auto it = feed_of_slot.find(plan.input_slots_[nodes[i].first_input + k]); it != feed_of_slot.end()) {
        fed.push_back({i, k, it->second});
        counts[i].live |= info.kind == Kind::kMerge;
        continue;
      }
      const Endpoint& source = node.input(k);
      out[position[source.node->id()]].push_back({source.index, i, k, 0, false, info.kind == Kind::kMerge});
      ++counts[i].pending;
    }
    for (const Node* before : node.control_inputs()) {
      if (position[before->id()] < 0) continue;
      out[position[before->id()]].push_back({-1, i, -1, 0, false, info.kind == Kind::kMerge});
      ++control;
    }
    if (counts[i].pending + control == 0) framed->roots.push_back(i);
    (info.kind == Kind::kMerge ? counts[i].pending_control : counts[i].pending) += control;
    if (on_cpu && node.is_type("Const")) {
      // As in a straight-line plan, read from the kernel once.
      KernelContext ctx;
      KernelContextAccess access(ctx);
      StepContext step;
      Tensor value;
      access.Set(nodes[i].node, nodes[i].device, nodes[i].device->allocator(), &step);
      access.SetInputs(nullptr, 0, 0);
      access.SetOutputs(&value, 1);
      if (nodes[i].kernel->Compute(ctx).ok()) {
        info.constant = static_cast<int>(framed->constants.size());
        framed->constants.push_back(std::move(value));
      }
    }
  }

  // Frames spread along the edges from the nodes that wait for nothing. A node's frame is that of its
  // inputs; an Enter's outputs are in its child frame, an Exit's in the parent.
  std::vector<int> frame(n, -1);
  std::vector<int> queue = framed->roots;
  for (const int i : queue) frame[i] = 0;
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
        f.name_hash = FrameNameHash(name);
        f.parent = frame[i];
        f.parallel_iterations = static_cast<int>(
            std::clamp<int64_t>(node.AttrOr<int64_t>("parallel_iterations", 10), 1, 1 << 20));
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
    for (const Edge& edge : out[i]) {
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
    info.local = static_cast<int>(f.counts.size());
    info.first_input = f.num_inputs;
    f.num_inputs += nodes[i].num_inputs;
    f.counts.push_back(counts[i]);
  }
  for (const Fed& f : fed) {
    const NodeInfo& info = framed->info[f.node];
    framed->frames[info.frame].fed_inputs.push_back({info.first_input + f.input, f.feed});
  }
  for (int i = 0; i < n; ++i) {
    NodeInfo& info = framed->info[i];
    std::stable_sort(out[i].begin(), out[i].end(), [](const Edge& a, const Edge& b) {
      return static_cast<unsigned>(a.output) < static_cast<unsigned>(b.output);
    });
    info.first_edge = static_cast<int>(framed->edges.size());
    info.num_edges = static_cast<int>(out[i].size());
    for (size_t e = 0; e < out[i].size(); ++e) {
      Edge edge = out[i][e];
      const NodeInfo& target = framed->info[edge.target];
      edge.local = target.local;
      edge.is_last = e + 1 == out[i].size() || out[i][e + 1].output != edge.output;
      if (edge.input >= 0) edge.input += target.first_input;
      info.needs_index |= edge.output == 1;
      framed->edges.push_back(edge);
    }
  }
  for (size_t f = 0; f < plan.fetches_.size(); ++f) {
    if (auto it = feed_of_slot.find(plan.fetch_slots_[f]); it != feed_of_slot.end()) {
      framed->fed_fetches.emplace_back(static_cast<int>(f), it->second);
      continue;
    }
    const int node = position[plan.fetches_[f].node->id()];
    framed->info[node].is_fetched = true;
    framed->info[node].needs_index |= plan.fetches_[f].index == 1;
    framed->fetches.push_back({node, plan.fetches_[f].index, static_cast<int>(f)});
  }
  std::sort(framed->fetches.begin(), framed->fetches.end(),
            [](const Fetch& a, const Fetch& b) { return a.node < b.node; });
  return framed;
}

}  // namespace millrace
