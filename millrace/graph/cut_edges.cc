#include "millrace/graph/cut_edges.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/graph/late_sends.h"

namespace millrace {
namespace {

// Constants up to this size are replicated into the part instead of being sent in every step.
constexpr size_t kMaxReplicatedBytes = 4096;
// From this many control edges from one task into a node, they are joined on that task first.
constexpr size_t kMinJoined = 4;
// From this many control inputs on, rewriting them all at once is faster.
constexpr size_t kManyControlInputs = 8;

void SetType(NodeSpec* spec, const char* attr, DType dtype) {
  spec->attrs[attr].set_type(static_cast<pb::DataType>(dtype));
}

class EdgeCutter {
 public:
  explicit EdgeCutter(CutGraph& cut) : cut_(cut), graph_(cut.graph()), late_(FindLateSends(cut)) {}

  Status Run() {
    const std::vector<Node*> nodes(graph_->nodes().begin(), graph_->nodes().end());
    for (Node* node : nodes) MR_RETURN_IF_ERROR(CutInputs(node));
    // After the data edges, so that a control edge can reuse a tensor that is received anyway.
    for (Node* node : nodes) MR_RETURN_IF_ERROR(CutControlInputs(node));
    return absl::OkStatus();
  }

 private:
  struct Pair {
    Endpoint source;
    int device;
    const Node* consumer;  // set only for a pair that is not shared
    friend bool operator==(const Pair&, const Pair&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Pair& p) {
      return H::combine(std::move(h), p.source, p.device, p.consumer);
    }
  };

  Status CutInputs(Node* node) {
    const int task = cut_.TaskOf(node);
    if (task < 0) return absl::OkStatus();
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Endpoint source = node->input(i);
      const int from = cut_.TaskOf(source.node);
      if (from == task) continue;
      if (from < 0) {
        if (cut_.FeedIndex(source) >= 0) continue;
        return Internal("{{node ", node->name(), "}} takes ", source.name(), ", which is neither fed nor on any task");
      }
      MR_ASSIGN_OR_RETURN(const Endpoint here, Received(source, node, i));
      graph_->SetInput(node, i, here);
    }
    return absl::OkStatus();
  }

  Status CheckMayCross(const Endpoint& source, const Node& consumer, int slot) const {
    const char* what = nullptr;
    if (IsRef(consumer.input_type(slot))) {
      what = "a reference to a variable";
    } else if (BaseType(source.dtype()) == DType::kResource) {
      what = "a resource handle";
    } else if (BaseType(source.dtype()) == DType::kVariant && absl::StrContains(source.node->type(), "Dataset")) {
      what = "a dataset";
    }
    if (what == nullptr) return absl::OkStatus();
    const auto name = [](const Node& node) { return node.origins()[0]; };
    return InvalidArgument("{{node ", name(consumer), "}} (op ", consumer.type(), ") on device ",
                           consumer.assigned_device(), " takes ", what, " from {{node ", name(*source.node), "}} (op ",
                           source.node->type(), ") on device ", source.node->assigned_device(),
                           "; it cannot leave its task: place both on the same one");
  }

  bool IsReplicable(const Node& node) const {
    if (!node.is_type("Const") || !node.control_inputs().empty()) return false;
    const pb::AttrValue* value = node.FindAttr("value");
    return value != nullptr && value->ByteSizeLong() <= kMaxReplicatedBytes;
  }

  StatusOr<Endpoint> Replica(Node* constant, int device) {
    Node*& replica = replicas_[{constant, device}];
    if (replica == nullptr) {
      NodeSpec spec;
      spec.name = cut_.NewName(absl::StrCat(constant->name(), "/_replica"), "_");
      spec.op = "Const";
      spec.attrs["dtype"] = *constant->FindAttr("dtype");
      spec.attrs["value"] = *constant->FindAttr("value");
      MR_ASSIGN_OR_RETURN(replica,
                          cut_.Add(std::move(spec), device, constant->origins(), CutGraph::kRoot, CutGraph::kRoot));
    }
    return replica->output(0);
  }

  // Adds a _Send and _Recv pair and returns the _Recv.
  StatusOr<Node*> Send(const Endpoint& source, int to_device, std::vector<Node*> control_inputs) {
    const int from_device = cut_.HostOf(source.node);
    const CutGraph::Device& from = cut_.device(from_device);
    const CutGraph::Device& to = cut_.device(to_device);
    if (!from.has_incarnation) return InvalidArgument("the incarnation of device ", from.name, " is not known");
    const DType dtype = BaseType(source.dtype());
    // On a CPU both kinds are equivalent; TensorFlow uses these for values that are always in host memory.
    const bool host = dtype == DType::kString || source.node->op().control_kind == ControlKind::kLoopCond;
    const int loop = cut_.OutputLoopOf(source.node);
    const auto add_attrs = [&](NodeSpec* spec, int64_t edge) {
      SetEdgeAttrs(spec, absl::StrCat("edge_", edge, "_", source.node->name()), from.name, from.incarnation, to.name,
                   false);
    };
    const int64_t edge = ++edges_;
    NodeSpec send;
    send.name = cut_.NewName(source.node->name());
    send.op = host ? "_HostSend" : "_Send";
    send.inputs = {source};
    send.control_inputs = std::move(control_inputs);
    SetType(&send, "T", dtype);
    add_attrs(&send, edge);
    MR_RETURN_IF_ERROR(cut_.Add(std::move(send), from_device, source.node->origins(), loop, loop).status());

    NodeSpec recv;
    recv.name = cut_.NewName(source.node->name());
    recv.op = host ? "_HostRecv" : "_Recv";
    SetType(&recv, "tensor_type", dtype);
    add_attrs(&recv, edge);
    if (loop != CutGraph::kRoot) {
      Node* const trigger = cut_.TriggerOf(loop, to.task);
      if (trigger == nullptr) {
        return Internal("{{node ", source.node->name(), "}}: loop '", cut_.loops()[loop].frame_name,
                        "' does not run on ", cut_.tasks()[to.task]);
      }
      recv.control_inputs = {trigger};
    }
    MR_ASSIGN_OR_RETURN(Node * received, cut_.Add(std::move(recv), to_device, source.node->origins(), loop, loop));
    cut_.AddSender(from.task, to.task);
    return received;
  }

  StatusOr<Endpoint> Received(const Endpoint& source, Node* consumer, int slot) {
    std::vector<Node*> late;
    if (const auto it = late_.find({consumer->id(), slot}); it != late_.end()) late = it->second;
    MR_RETURN_IF_ERROR(CheckMayCross(source, *consumer, slot));
    const int device = cut_.HostOf(consumer);
    if (IsReplicable(*source.node)) return Replica(source.node, device);
    // A variable is read when it is sent. A consumer ordered after an update needs the updated value, so the _Send
    // waits for the update too.
    if (IsRef(source.dtype()) && late.empty()) {
      for (Node* before : consumer->control_inputs()) {
        if (cut_.TaskOf(before) == cut_.TaskOf(source.node) &&
            cut_.OutputLoopOf(before) == cut_.OutputLoopOf(source.node))
          late.push_back(before);
      }
    }
    const Pair pair = {source, device, late.empty() ? nullptr : consumer};
    Node*& received = received_[pair];
    if (received == nullptr) {
      MR_ASSIGN_OR_RETURN(received, Send(source, device, std::move(late)));
      if (!source.node->IsSwitch() && !IsRef(source.dtype()))
        waits_.try_emplace(std::make_pair(source.node, device), received);
    }
    return received->output(0);
  }

  // A node on `device` that runs after `before`, which is on another task.
  StatusOr<Node*> WaitFor(Node* before, int device) {
    if (const auto it = waits_.find(std::make_pair(before, device)); it != waits_.end()) return it->second;
    const int loop = cut_.OutputLoopOf(before);
    Node*& empty = empties_[before];
    if (empty == nullptr) {
      NodeSpec spec;
      spec.name = cut_.NewName(absl::StrCat(before->name(), "/ctrl"));
      spec.op = "Const";
      spec.control_inputs = {before};
      SetType(&spec, "dtype", DType::kFloat);
      pb::TensorProto* value = spec.attrs["value"].mutable_tensor();
      value->set_dtype(pb::DT_FLOAT);
      value->mutable_tensor_shape()->add_dim()->set_size(0);
      MR_ASSIGN_OR_RETURN(empty, cut_.Add(std::move(spec), cut_.HostOf(before), before->origins(), loop, loop));
    }
    MR_ASSIGN_OR_RETURN(Node * received, Send(empty->output(0), device, {}));
    NodeSpec spec;
    spec.name = cut_.NewName(before->name());
    spec.op = "Identity";
    spec.inputs = {received->output(0)};
    MR_ASSIGN_OR_RETURN(Node * arrived, cut_.Add(std::move(spec), device, before->origins(), loop, loop));
    waits_[{before, device}] = arrived;
    return arrived;
  }

  // A node that runs after all of `before`, which are on one task and in one loop.
  StatusOr<Node*> Join(std::vector<Node*> before, const Node* consumer) {
    std::vector<int> ids;
    for (const Node* node : before) ids.push_back(node->id());
    std::sort(ids.begin(), ids.end());
    Node*& join = joins_[ids];
    if (join == nullptr) {
      const int device = cut_.HostOf(before[0]), loop = cut_.OutputLoopOf(before[0]);
      NodeSpec spec;
      spec.name = cut_.NewName(absl::StrCat(consumer->name(), "/_join"));
      spec.op = "NoOp";
      spec.control_inputs = std::move(before);
      MR_ASSIGN_OR_RETURN(join, cut_.Add(std::move(spec), device, consumer->origins(), loop, loop));
    }
    return join;
  }

  Status CutControlInputs(Node* node) {
    const int task = cut_.TaskOf(node);
    if (task < 0) return absl::OkStatus();
    std::vector<Node*> gone;
    absl::flat_hash_map<std::pair<int, int>, std::vector<Node*>> remote;  // by task and loop
    std::vector<std::pair<int, int>> order;
    const int device = cut_.HostOf(node);
    for (Node* before : node->control_inputs()) {
      const int from = cut_.TaskOf(before);
      if (from == task) continue;
      gone.push_back(before);
      if (from < 0) continue;  // a feed exists before the step begins
      const bool implied = std::any_of(node->inputs().begin(), node->inputs().end(), [&](const Endpoint& e) {
        const auto it = waits_.find(std::make_pair(before, device));
        return it != waits_.end() && it->second == e.node;
      });
      if (implied) continue;
      auto [it, is_new] = remote.try_emplace(std::make_pair(from, cut_.OutputLoopOf(before)));
      if (is_new) order.push_back(it->first);
      it->second.push_back(before);
    }
    if (gone.empty()) return absl::OkStatus();
    std::vector<Node*> fresh;
    for (const auto& key : order) {
      std::vector<Node*>& before = remote[key];
      if (before.size() >= kMinJoined) {
        MR_ASSIGN_OR_RETURN(Node * join, Join(std::move(before), node));
        before = {join};
      }
      for (Node* source : before) {
        MR_ASSIGN_OR_RETURN(Node * wait, WaitFor(source, device));
        fresh.push_back(wait);
      }
    }
    if (gone.size() < kManyControlInputs) {
      for (Node* before : gone) graph_->RemoveControlInput(node, before);
      for (Node* wait : fresh) graph_->AddControlInput(node, wait);
      return absl::OkStatus();
    }
    const absl::flat_hash_set<const Node*> removed(gone.begin(), gone.end());
    absl::flat_hash_set<const Node*> seen;
    NodeSpec spec;
    spec.op = node->type();
    spec.inputs.assign(node->inputs().begin(), node->inputs().end());
    spec.device = node->requested_device();
    spec.attrs = node->attrs();
    for (Node* before : node->control_inputs()) {
      if (!removed.contains(before) && seen.insert(before).second) spec.control_inputs.push_back(before);
    }
    for (Node* wait : fresh) {
      if (seen.insert(wait).second) spec.control_inputs.push_back(wait);
    }
    return graph_->ReplaceNode(node, std::move(spec));
  }

  CutGraph& cut_;
  Graph* const graph_;
  const LateSends late_;
  absl::flat_hash_map<Pair, Node*> received_;
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> replicas_;
  // (source, device): the node to wait for on that device
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> waits_;
  absl::flat_hash_map<const Node*, Node*> empties_;     // the empty tensor that is sent for a control edge
  absl::flat_hash_map<std::vector<int>, Node*> joins_;  // by ids
  int64_t edges_ = 0;
};

}  // namespace

Status CutEdges(CutGraph& cut) { return EdgeCutter(cut).Run(); }

}  // namespace millrace
