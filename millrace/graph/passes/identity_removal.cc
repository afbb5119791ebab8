#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

// Not bypassed: an Identity of a variable, which determines when it is read, and one after a Switch or at the border of
// a frame, which may propagate deadness along control edges.
bool IsBypassable(const Node& node, const Roles& roles) {
  if (!node.op().Has(OpTrait::kForwards) || !roles.IsInner(&node) || !node.control_inputs().empty()) return false;
  const Endpoint& source = node.input(0);
  if (IsRef(source.dtype()) || source.node->IsControlFlow() || source.node->is_type("ReadVariableOp")) return false;
  if (source.node->is_detached()) return true;
  return node.assigned_device() == source.node->assigned_device() &&
         (node.requested_device() == source.node->requested_device() || node.requested_device().empty());
}

}  // namespace

Status RemoveIdentities(Graph* graph, const PassContext& context) {
  const Roles roles(*graph, context);
  std::vector<bool> waited_for(graph->max_id(), false);
  for (const Node* node : graph->nodes()) {
    for (const Node* before : node->control_inputs()) waited_for[before->id()] = true;
  }
  std::vector<bool> bypassed(graph->max_id(), false);
  bool any = false;
  for (const Node* node : graph->nodes()) {
    bypassed[node->id()] = !waited_for[node->id()] && IsBypassable(*node, roles);
    any |= bypassed[node->id()];
  }
  if (!any) return absl::OkStatus();
  for (Node* node : graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      Endpoint source = node->input(i);
      while (bypassed[source.node->id()]) source = source.node->input(0);
      if (source != node->input(i)) graph->SetInput(node, i, source);
    }
  }
  graph->RemoveNodes([&](const Node* node) { return bypassed[node->id()]; });
  return absl::OkStatus();
}

}  // namespace millrace
