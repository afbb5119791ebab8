// Fuses groups of element-wise ops into one node, which evaluates all of them block by block while the block is in the
// cache.
//
// A group has one result, its root. All other members are used only within the group. All members work on one iteration
// space, the largest shape: each value has that shape, or one element per row (the result of a reduction along the last
// axis), or is a scalar.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/passes/roles.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {
namespace {

constexpr char kFused[] = "_FusedElementwise";
constexpr size_t kMostMembers = 48, kMostInputs = 32;
// Fusing smaller tensors gains nothing.
constexpr int64_t kLeastElements = 64;

bool IsElementwise(const Node& node) { return node.op().Has(OpTrait::kElementwise); }
bool IsReduction(const Node& node) { return node.op().Has(OpTrait::kRowReduction); }

bool Same(const PartialShape& a, const PartialShape& b) {
  return a.known_rank() && b.known_rank() && a.dims() == b.dims();
}

// True if the shape has one element per row of `space`.
bool IsRowValue(const PartialShape& shape, const PartialShape& space) {
  const int rank = space.rank();
  if (shape.rank() != rank || shape.dim(rank - 1) != 1) return false;
  return shape.dims().subspan(0, rank - 1) == space.dims().subspan(0, rank - 1);
}

// True for a reduction along the last axis only, with a constant axis.
bool ReducesLastAxis(const Node& node) {
  if (!IsReduction(node) || !node.input(1).node->is_type("Const")) return false;
  const int rank = node.input(0).shape().rank();
  const StatusOr<Tensor> axes = node.input(1).node->Attr<Tensor>("value");
  if (rank < 1 || !axes.ok() || axes->num_elements() != 1) return false;
  const int64_t axis = axes->dtype() == DType::kInt32   ? axes->scalar<int32_t>()
                       : axes->dtype() == DType::kInt64 ? axes->scalar<int64_t>()
                                                        : rank;
  return axis == -1 || axis == rank - 1;
}

class ElementwiseFuser {
 public:
  ElementwiseFuser(Graph* graph, const PassContext& context, std::vector<Node*> order)
      : graph_(graph),
        roles_(*graph, context),
        consumers_(ConsumersById(*graph)),
        order_(std::move(order)),
        position_(graph->max_id(), -1),
        grouped_(graph->max_id(), false) {
    for (size_t i = 0; i < order_.size(); ++i) position_[order_[i]->id()] = static_cast<int>(i);
  }

  Status Run() {
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      Node* const root = *it;
      if (grouped_[root->id()] || !IsCandidate(*root)) continue;
      Group group;
      if (Grow(root, SpaceOf(root), &group) || Grow(root, root->output_shape(0), &group)) {
        MR_RETURN_IF_ERROR(Fuse(root, group));
      }
    }
    graph_->RemoveNodes(
        [&](const Node* node) { return node->id() < static_cast<int>(grouped_.size()) && grouped_[node->id()]; });
    return absl::OkStatus();
  }

 private:
  struct Group {
    std::vector<Node*> members;
    std::vector<Endpoint> inputs;
    int space_input = -1;
  };

  bool IsCandidate(const Node& node) const {
    if (node.num_outputs() != 1 || roles_.IsFed(&node) || node.is_detached()) return false;
    if (!RunsInHostMemory(node)) return false;  // only the host has a kernel for the fused op
    if (!IsElementwise(node) && !ReducesLastAxis(node)) return false;
    if (!IsPlain(node.output_type(0)) || !node.output_shape(0).known_rank()) return false;
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (!IsPlain(node.input(i).dtype()) || !node.input(i).shape().known_rank()) return false;
    }
    return true;
  }

  static bool SameDevice(const Node& a, const Node& b) {
    return a.assigned_device() == b.assigned_device() && a.requested_device() == b.requested_device();
  }

  // The iteration space of a root's group: the shape that is reduced on the way to the root, or the root's own.
  static PartialShape SpaceOf(const Node* root) {
    std::vector<const Node*> seen = {root};
    for (size_t head = 0; head < seen.size() && head < 16; ++head) {
      const Node* node = seen[head];
      if (ReducesLastAxis(*node) && (node == root || node->AttrOr<bool>("keep_dims", false))) {
        return node->input(0).shape();
      }
      for (const Endpoint& e : node->inputs()) {
        const Node* source = e.node;
        const bool follow = (IsElementwise(*source) || ReducesLastAxis(*source)) && source->num_outputs() == 1 &&
                            Same(source->output_shape(0), root->output_shape(0));
        if (follow && std::find(seen.begin(), seen.end(), source) == seen.end()) seen.push_back(source);
      }
    }
    return root->output_shape(0);
  }

  // True if the node can be a member of a group with this iteration space.
  bool Fits(const Node& node, const PartialShape& space, bool is_root) const {
    if (!IsCandidate(node)) return false;
    if (IsReduction(node)) {
      return Same(node.input(0).shape(), space) && (is_root || node.AttrOr<bool>("keep_dims", false));
    }
    return Same(node.output_shape(0), space) || IsRowValue(node.output_shape(0), space);
  }

  // Collects all nodes that can be fused into the root. Returns false if fusing them is not worthwhile.
  bool Grow(Node* root, const PartialShape& space, Group* group) const {
    *group = Group();
    if (space.rank() < 1 || !Fits(*root, space, true)) return false;
    int64_t elements = 1;
    for (const int64_t d : space.dims()) elements = d < 0 ? -1 : elements < 0 ? -1 : elements * d;
    if (elements >= 0 && elements < kLeastElements) return false;
    absl::flat_hash_map<const Node*, size_t> uses;
    absl::flat_hash_set<const Node*> inside = {root};
    group->members = {root};
    for (size_t head = 0; head < group->members.size(); ++head) {
      Node* const node = group->members[head];
      const int data_inputs = IsReduction(*node) ? 1 : node->num_inputs();
      for (int i = 0; i < data_inputs; ++i) {
        Node* const source = node->input(i).node;
        if (source->is_detached() || grouped_[source->id()] || group->members.size() >= kMostMembers) continue;
        // A source becomes a member once all of its uses are by members.
        if (++uses[source] != consumers_[source->id()].size()) continue;
        if (!roles_.IsInner(source) || !SameDevice(*source, *root) || !Fits(*source, space, false)) continue;
        inside.insert(source);
        group->members.push_back(source);
      }
    }
    if (group->members.size() < 2) return false;
    std::sort(group->members.begin(), group->members.end(),
              [&](const Node* a, const Node* b) { return position_[a->id()] < position_[b->id()]; });
    for (const Node* node : group->members) {
      const int data_inputs = IsReduction(*node) ? 1 : node->num_inputs();
      for (int i = 0; i < data_inputs; ++i) {
        const Endpoint& e = node->input(i);
        if (inside.contains(e.node) || Index(group->inputs, e) >= 0) continue;
        if (group->space_input < 0 && Same(e.shape(), space)) {
          group->space_input = static_cast<int>(group->inputs.size());
        }
        group->inputs.push_back(e);
      }
    }
    return group->space_input >= 0 && group->inputs.size() <= kMostInputs;
  }

  static int Index(const std::vector<Endpoint>& list, const Endpoint& e) {
    const auto at = std::find(list.begin(), list.end(), e);
    return at == list.end() ? -1 : static_cast<int>(at - list.begin());
  }
  static std::string InputName(int i) { return absl::StrCat(".in", i); }

  // The members as a serialized graph. Empty if a name chosen by the user prevents it.
  static std::string BodyOf(const Group& group) {
    pb::GraphDef body;
    absl::flat_hash_set<const Node*> inside(group.members.begin(), group.members.end());
    absl::flat_hash_set<const Node*> constants;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      pb::NodeDef* def = body.add_node();
      def->set_name(InputName(static_cast<int>(i)));
      def->set_op("Placeholder");
      (*def->mutable_attr())["dtype"] = AttrInit(BaseType(group.inputs[i].dtype())).value();
      (*def->mutable_attr())["shape"] = AttrInit(group.inputs[i].shape()).value();
    }
    const auto add = [&](const Node& node) {
      pb::NodeDef* def = body.add_node();
      *def = ExportNodeDef(node);
      def->clear_device();
      def->clear_input();
      std::vector<std::string> own;
      for (const auto& [name, value] : def->attr()) {
        if (name[0] == '_') own.push_back(name);
      }
      for (const std::string& name : own) def->mutable_attr()->erase(name);
      return def;
    };
    for (const Node* node : group.members) {
      if (node->name().rfind(".in", 0) == 0) return "";
      if (IsReduction(*node) && constants.insert(node->input(1).node).second) add(*node->input(1).node);
    }
    for (const Node* node : group.members) {
      pb::NodeDef* def = add(*node);
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Endpoint& e = node->input(i);
        const bool own = inside.contains(e.node) || (IsReduction(*node) && i == 1);
        def->add_input(own ? e.node->name() : InputName(Index(group.inputs, e)));
      }
    }
    return body.SerializeAsString();
  }

  Status Fuse(Node* root, const Group& group) {
    NodeSpec spec;
    spec.op = kFused;
    spec.inputs = group.inputs;
    spec.device = root->requested_device();
    std::vector<DType> types;
    for (const Endpoint& e : group.inputs) types.push_back(BaseType(e.dtype()));
    std::vector<std::string> origins;
    for (Node* part : group.members) {
      for (Node* before : part->control_inputs()) {
        if (std::find(spec.control_inputs.begin(), spec.control_inputs.end(), before) == spec.control_inputs.end()) {
          spec.control_inputs.push_back(before);
        }
      }
      origins.insert(origins.end(), part->origins().begin(), part->origins().end());
      for (const auto& [name, value] : part->attrs()) {
        if (name[0] == '_') spec.attrs[name] = value;
      }
    }
    const std::string body = BodyOf(group);
    if (body.empty()) return absl::OkStatus();
    spec.attrs["Tin"] = AttrInit(types).value();
    spec.attrs["Tout"] = AttrInit(root->output_type(0)).value();
    spec.attrs["body"].set_s(body);
    spec.attrs["space_input"].set_i(group.space_input);
    MR_RETURN_IF_ERROR(graph_->ReplaceNode(root, std::move(spec)));
    graph_->SetOrigins(root, std::move(origins));
    for (const Node* node : group.members) grouped_[node->id()] = node != root;
    return absl::OkStatus();
  }

  Graph* const graph_;
  const Roles roles_;
  const std::vector<std::vector<Consumer>> consumers_;
  const std::vector<Node*> order_;
  std::vector<int> position_;
  std::vector<bool> grouped_;  // already fused into a root
};

// Assumes that feeds have the shapes that their placeholders declare, which is not verified here; the fused kernel
// checks it.
Status InferFromFeeds(Graph* graph, const PassContext& context) {
  bool any = false;
  for (const Endpoint& feed : context.feeds) {
    if (!feed.node->is_type("Placeholder") || feed.shape().known_rank()) continue;
    const PartialShape shape = feed.node->AttrOr<PartialShape>("shape", PartialShape());
    // Old producers write an unknown shape as a scalar's.
    if (!shape.known_rank() || (shape.rank() == 0 && graph->versions().producer() < 24)) continue;
    graph->SetOutputShape(feed.node, feed.index, shape);
    any = true;
  }
  return any ? InferShapes(graph, /*lenient=*/true) : absl::OkStatus();
}

}  // namespace

Status FuseElementwise(Graph* graph, const PassContext& context) {
  if (OpRegistry::Global().FindOrNull(kFused) == nullptr) return absl::OkStatus();
  const bool any =
      std::any_of(graph->nodes().begin(), graph->nodes().end(), [](const Node* node) { return IsElementwise(*node); });
  if (!any) return absl::OkStatus();
  MR_RETURN_IF_ERROR(InferFromFeeds(graph, context));
  MR_ASSIGN_OR_RETURN(std::vector<Node*> order, TopologicalOrder(*graph));
  return ElementwiseFuser(graph, context, std::move(order)).Run();
}

}  // namespace millrace
