#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

// The MatMul whose only consumer is this Slice; null if there is none.
Node* SlicedProduct(const Node& slice, const Roles& roles, const std::vector<std::vector<Consumer>>& consumers) {
  if (!slice.is_type("Slice") || roles.IsFed(&slice)) return nullptr;
  Node* product = slice.input(0).node;
  const auto& users = consumers[product->id()];
  const bool fits = product->is_type("MatMul") && product->output_type(0) == DType::kFloat && roles.IsInner(product) &&
                    users.size() == 1 && users[0].slot == 0 && RunsInHostMemory(*product) &&
                    product->requested_device() == slice.requested_device() &&
                    product->assigned_device() == slice.assigned_device();
  return fits ? product : nullptr;
}

}  // namespace

Status SliceProducts(Graph* graph, const PassContext& context) {
  const OpSchema* const fused = OpRegistry::Global().FindOrNull("_SlicedMatMul");
  const bool has_slice = std::any_of(graph->nodes().begin(), graph->nodes().end(),
                                     [](const Node* node) { return node->is_type("Slice"); });
  if (fused == nullptr || !has_slice) return absl::OkStatus();
  const Roles roles(*graph, context);
  const std::vector<std::vector<Consumer>> consumers = ConsumersById(*graph);
  absl::flat_hash_set<const Node*> gone;
  for (Node* slice : graph->nodes()) {
    Node* const product = SlicedProduct(*slice, roles, consumers);
    if (product == nullptr) continue;
    NodeSpec spec;
    spec.op = "_SlicedMatMul";
    spec.inputs = {product->input(0), product->input(1), slice->input(1), slice->input(2)};
    spec.device = slice->requested_device();
    std::vector<std::string> origins;
    for (Node* part : {product, slice}) {
      for (Node* before : part->control_inputs()) {
        if (std::find(spec.control_inputs.begin(), spec.control_inputs.end(), before) == spec.control_inputs.end()) {
          spec.control_inputs.push_back(before);
        }
      }
      origins.insert(origins.end(), part->origins().begin(), part->origins().end());
      for (const auto& [name, value] : part->attrs()) {
        if (name[0] == '_' || fused->FindAttr(name) != nullptr) spec.attrs[name] = value;
      }
    }
    MR_RETURN_IF_ERROR(graph->ReplaceNode(slice, std::move(spec)));
    graph->SetOrigins(slice, std::move(origins));
    gone.insert(product);
  }
  graph->RemoveNodes([&](const Node* node) { return gone.contains(node); });
  return absl::OkStatus();
}

}  // namespace millrace
