// Gathers from TF1 variables without a snapshot of the whole variable.
//
// tf.gather of a reference is GatherV2(Identity(variable), ids, 0). The Identity would copy the whole of a variable
// that has sparse updates, although the gather needs only a few rows. The gather may read the variable directly if no
// update of this step can run in between, that is, if every update is ordered after the gather.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

constexpr char kGatherRows[] = "_GatherVariableRows";

// The variable that a reference refers to, through ops that forward references.
const Node* RootNodeOf(Endpoint reference) {
  while (reference.node->num_inputs() > 0 && IsRef(reference.node->input(0).dtype()) && IsRef(reference.dtype())) {
    reference = reference.node->input(0);
  }
  return reference.node;
}

bool IsZero(const Endpoint& axis) {
  if (!axis.node->is_type("Const")) return false;
  const StatusOr<Tensor> value = axis.node->Attr<Tensor>("value");
  if (!value.ok() || value->num_elements() != 1) return false;
  return value->dtype() == DType::kInt32   ? value->scalar<int32_t>() == 0
         : value->dtype() == DType::kInt64 ? value->scalar<int64_t>() == 0
                                           : false;
}

// `identity` is null if the gather takes the reference itself.
struct Candidate {
  Node* gather;
  const Node* identity;
  Endpoint reference;
};

bool Match(Node* node, Candidate* found) {
  if (!node->is_type("GatherV2") && !node->is_type("Gather")) return false;
  if (!RunsInHostMemory(*node)) return false;  // only the host has a kernel for the new op
  if (node->input_type(1) != DType::kInt32 && node->input_type(1) != DType::kInt64) return false;
  if (node->num_inputs() > 2 && (!IsZero(node->input(2)) || node->AttrOr<int64_t>("batch_dims", 0) != 0)) {
    return false;
  }
  *found = {node, nullptr, node->input(0)};
  const Node* source = node->input(0).node;
  if (!IsRef(node->input(0).dtype())) {
    if (!source->is_type("Identity") || !IsRef(source->input(0).dtype())) return false;
    if (source->assigned_device() != node->assigned_device()) return false;
    found->identity = source;
    found->reference = source->input(0);
  }
  return !found->reference.node->is_detached() && RunsInHostMemory(*found->reference.node) &&
         !found->reference.node->IsControlFlow();
}

// The nodes that are ordered before `node`, by id.
std::vector<bool> Ancestors(const Graph& graph, const Node* node) {
  std::vector<bool> before(graph.max_id(), false);
  std::vector<const Node*> queue = {node};
  const auto visit = [&](const Node* n) {
    if (before[n->id()]) return;
    before[n->id()] = true;
    queue.push_back(n);
  };
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const Endpoint& e : queue[head]->inputs()) visit(e.node);
    for (const Node* n : queue[head]->control_inputs()) visit(n);
  }
  return before;
}

Status Rewrite(Graph* graph, const Candidate& c) {
  NodeSpec spec;
  spec.op = kGatherRows;
  spec.inputs = {c.reference, c.gather->input(1)};
  spec.device = c.gather->requested_device();
  spec.control_inputs.assign(c.gather->control_inputs().begin(), c.gather->control_inputs().end());
  if (c.identity != nullptr) {
    for (Node* before : c.identity->control_inputs()) {
      if (std::find(spec.control_inputs.begin(), spec.control_inputs.end(), before) == spec.control_inputs.end()) {
        spec.control_inputs.push_back(before);
      }
    }
  }
  for (const auto& [name, value] : c.gather->attrs()) {
    if (name[0] == '_') spec.attrs[name] = value;
  }
  return graph->ReplaceNode(c.gather, std::move(spec));
}

}  // namespace

Status ReadRowsOfVariables(Graph* graph, const PassContext& context) {
  if (OpRegistry::Global().FindOrNull(kGatherRows) == nullptr) return absl::OkStatus();
  const Roles roles(*graph, context);
  absl::flat_hash_map<const Node*, std::vector<Candidate>> by_variable;
  for (Node* node : graph->nodes()) {
    Candidate c;
    if (roles.IsFed(node) || !Match(node, &c)) continue;
    if (c.identity != nullptr && roles.IsFed(c.identity)) continue;
    by_variable[RootNodeOf(c.reference)].push_back(c);
  }
  if (by_variable.empty()) return absl::OkStatus();
  for (const Node* node : graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!IsRef(node->input(i).dtype()) || !IsRef(node->input_type(i))) continue;
      const auto at = by_variable.find(RootNodeOf(node->input(i)));
      if (at == by_variable.end() || at->second.empty()) continue;
      // A gather that takes the reference itself needs no change.
      const std::vector<bool> before = Ancestors(*graph, node);
      auto& candidates = at->second;
      candidates.erase(
          std::remove_if(candidates.begin(), candidates.end(),
                         [&](const Candidate& c) { return c.identity != nullptr && !before[c.gather->id()]; }),
          candidates.end());
    }
  }
  for (const auto& [variable, candidates] : by_variable) {
    for (const Candidate& c : candidates) MR_RETURN_IF_ERROR(Rewrite(graph, c));
  }
  return absl::OkStatus();
}

}  // namespace millrace
