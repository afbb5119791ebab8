#include "millrace/graph/passes/saved_reads.h"

#include <algorithm>

#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

constexpr char kSaveVariables[] = "_SaveVariables";
constexpr int kFirstTensor = 3;

Status Rewrite(Graph* graph, Node* save, const std::vector<bool>& in_place) {
  NodeSpec spec;
  spec.op = kSaveVariables;
  spec.device = save->requested_device();
  spec.control_inputs.assign(save->control_inputs().begin(), save->control_inputs().end());
  std::vector<DType> types;
  for (int i = 0; i < save->num_inputs(); ++i) {
    Endpoint input = save->input(i);
    if (in_place[static_cast<size_t>(i)]) {
      for (Node* before : input.node->control_inputs()) {
        if (std::find(spec.control_inputs.begin(), spec.control_inputs.end(), before) == spec.control_inputs.end())
          spec.control_inputs.push_back(before);
      }
      input = input.node->input(0);
    }
    spec.inputs.push_back(input);
    if (i >= kFirstTensor) types.push_back(input.dtype());
  }
  spec.attrs["dtypes"] = AttrInit(types).value();
  for (const auto& [name, value] : save->attrs()) {
    if (name[0] == '_') spec.attrs[name] = value;
  }
  return graph->ReplaceNode(save, std::move(spec));
}

}  // namespace

Status SaveVariablesInPlace(Graph* graph, const PassContext& context) {
  std::vector<Node*> saves;
  for (Node* node : graph->nodes()) {
    if (node->is_type("SaveV2")) saves.push_back(node);
  }
  if (saves.empty() || OpRegistry::Global().FindOrNull(kSaveVariables) == nullptr) return absl::OkStatus();
  const Roles roles(*graph, context);
  // The number of consumers of each node, including control edges.
  std::vector<int> users(static_cast<size_t>(graph->max_id()), 0);
  for (const Node* node : graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (node->input_type(i) == DType::kResource && !node->op().Has(OpTrait::kReadsVariable)) return absl::OkStatus();
      ++users[static_cast<size_t>(node->input(i).node->id())];
    }
    for (const Node* before : node->control_inputs()) ++users[static_cast<size_t>(before->id())];
  }
  for (Node* save : saves) {
    if (roles.IsFed(save)) continue;
    std::vector<bool> in_place(static_cast<size_t>(save->num_inputs()), false);
    for (int i = kFirstTensor; i < save->num_inputs(); ++i) {
      const Node* const read = save->input(i).node;
      in_place[static_cast<size_t>(i)] = read->is_type("ReadVariableOp") && roles.IsInner(read) &&
                                         !read->is_detached() && !read->input(0).node->is_detached() &&
                                         read->assigned_device() == save->assigned_device() &&
                                         users[static_cast<size_t>(read->id())] == 1;
    }
    if (std::find(in_place.begin(), in_place.end(), true) != in_place.end())
      MR_RETURN_IF_ERROR(Rewrite(graph, save, in_place));
  }
  return absl::OkStatus();
}

}  // namespace millrace
