// Fuses Conv2DBackpropInput with the addition of another gradient, as residual networks have one for each shortcut.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/passes/fused_node.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

constexpr char kConv[] = "Conv2DBackpropInput";
constexpr char kFusedConv[] = "_FusedConv2DBackpropInput";

class GradientSumFuser {
 public:
  GradientSumFuser(Graph* graph, const PassContext& context)
      : graph_(graph), roles_(*graph, context), consumers_(ConsumersById(*graph)) {}

  Status TryFuse(Node* sum) {
    const bool adds = sum->is_type("AddV2") || sum->is_type("Add") || (sum->is_type("AddN") && sum->num_inputs() == 2);
    if (!adds || sum->output_type(0) != DType::kFloat || roles_.IsFed(sum)) return absl::OkStatus();
    const PartialShape shape = sum->input(0).shape();
    if (!shape.IsFullyDefined() || sum->input(1).shape() != shape) return absl::OkStatus();
    for (const int i : {0, 1}) {
      Node* conv = sum->input(i).node;
      if (conv->is_type(kConv) && IsOnlyFor(*conv, *sum)) return Fuse(conv, sum, sum->input(1 - i));
    }
    return absl::OkStatus();
  }

  void RemoveFused() {
    graph_->RemoveNodes([&](const Node* node) { return gone_.contains(node); });
  }

 private:
  bool IsOnlyFor(const Node& conv, const Node& sum) const {
    return roles_.IsInner(&conv) && consumers_[conv.id()].size() == 1 && consumers_[conv.id()][0].slot >= 0 &&
           RunsInHostMemory(conv) && conv.requested_device() == sum.requested_device() &&
           conv.assigned_device() == sum.assigned_device();
  }

  Status Fuse(Node* conv, Node* sum, Endpoint addend) {
    Node* const parts[] = {conv, sum};
    NodeSpec spec = SpecInPlaceOf(parts, kFusedConv);
    spec.inputs = {conv->input(0), conv->input(1), conv->input(2), addend};
    for (const auto& [name, value] : conv->attrs()) spec.attrs[name] = value;
    std::vector<std::string> origins = OriginsOf(parts);
    MR_RETURN_IF_ERROR(graph_->ReplaceNode(sum, std::move(spec)));
    graph_->SetOrigins(sum, std::move(origins));
    gone_.insert(conv);
    return absl::OkStatus();
  }

  Graph* const graph_;
  const Roles roles_;
  const std::vector<std::vector<Consumer>> consumers_;
  absl::flat_hash_set<const Node*> gone_;
};

}  // namespace

Status FuseGradientSums(Graph* graph, const PassContext& context) {
  const bool has_any =
      std::any_of(graph->nodes().begin(), graph->nodes().end(), [](const Node* node) { return node->is_type(kConv); });
  if (!has_any || OpRegistry::Global().FindOrNull(kFusedConv) == nullptr) return absl::OkStatus();
  GradientSumFuser fuser(graph, context);
  for (Node* node : graph->nodes()) MR_RETURN_IF_ERROR(fuser.TryFuse(node));
  fuser.RemoveFused();
  return absl::OkStatus();
}

}  // namespace millrace
