#include <algorithm>

#include "absl/hash/hash.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

// Larger attrs are not compared.
constexpr size_t kMaxAttrBytes = 1 << 16;

bool IsCandidate(const Node& node) {
  const OpSchema& op = node.op();
  if (op.is_stateful || node.IsControlFlow() || node.num_outputs() == 0) return false;
  // Of the ops without inputs only constants can be merged: placeholders are distinguished by name.
  if (node.num_inputs() == 0 && !node.is_type("Const")) return false;
  for (DType t : node.output_types()) {
    if (IsRef(t) || t == DType::kResource || t == DType::kVariant) return false;
  }
  for (const Endpoint& e : node.inputs()) {
    if (IsRef(e.dtype())) return false;
  }
  if (const pb::AttrValue* value = node.FindAttr("value")) return value->ByteSizeLong() <= kMaxAttrBytes;
  return true;
}

bool SameValue(const pb::AttrValue& a, const pb::AttrValue& b) {
  if (&a == &b) return true;
  if (a.value_case() != b.value_case()) return false;
  switch (a.value_case()) {
    case pb::AttrValue::kI:
      return a.i() == b.i();
    case pb::AttrValue::kB:
      return a.b() == b.b();
    case pb::AttrValue::kType:
      return a.type() == b.type();
    case pb::AttrValue::kS:
      return a.s() == b.s();
    // Equal bytes imply equal values. Maps may be serialized in different orders; then both nodes are kept.
    default:
      return a.SerializeAsString() == b.SerializeAsString();
  }
}

size_t HashValue(const pb::AttrValue& value) {
  switch (value.value_case()) {
    case pb::AttrValue::kI:
      return absl::HashOf(1, value.i());
    case pb::AttrValue::kB:
      return absl::HashOf(2, value.b());
    case pb::AttrValue::kType:
      return absl::HashOf(3, static_cast<int>(value.type()));
    case pb::AttrValue::kS:
      return absl::HashOf(4, value.s());
    default:
      return absl::HashOf(5, value.SerializeAsString());
  }
}

// The inputs, in canonical order for commutative ops.
absl::InlinedVector<Endpoint, 4> Inputs(const Node& node) {
  absl::InlinedVector<Endpoint, 4> inputs(node.inputs().begin(), node.inputs().end());
  if (node.op().is_commutative) {
    std::sort(inputs.begin(), inputs.end(), [](const Endpoint& a, const Endpoint& b) {
      return std::make_pair(a.node->id(), a.index) < std::make_pair(b.node->id(), b.index);
    });
  }
  return inputs;
}

std::vector<Node*> Waits(const Node& node) {
  std::vector<Node*> waits(node.control_inputs().begin(), node.control_inputs().end());
  std::sort(waits.begin(), waits.end(), [](Node* a, Node* b) { return a->id() < b->id(); });
  return waits;
}

size_t HashNode(const Node& node) {
  size_t h = absl::HashOf(&node.op(), node.requested_device());
  for (const Endpoint& e : Inputs(node)) h = absl::HashOf(h, e.node->id(), e.index);
  for (const Node* before : Waits(node)) h = absl::HashOf(h, before->id());
  for (const OpAttr& attr : node.op().attrs) {
    const pb::AttrValue* value = node.FindAttr(attr.name);
    h = absl::HashOf(h, value == nullptr ? 0 : HashValue(*value));
  }
  return h;
}

// Attributes that the schema does not declare must be equal too, because they may have a meaning elsewhere.
bool SameExtraAttrs(const Node& a, const Node& b) {
  for (const auto& [name, value] : a.attrs()) {
    if (name[0] != '_') continue;
    const pb::AttrValue* other = b.FindAttr(name);
    if (other == nullptr || !SameValue(value, *other)) return false;
  }
  return true;
}

bool Same(const Node& a, const Node& b) {
  if (&a.op() != &b.op() || a.requested_device() != b.requested_device() ||
      a.assigned_device() != b.assigned_device() || Inputs(a) != Inputs(b) || Waits(a) != Waits(b)) {
    return false;
  }
  for (const OpAttr& attr : a.op().attrs) {
    const pb::AttrValue* va = a.FindAttr(attr.name);
    const pb::AttrValue* vb = b.FindAttr(attr.name);
    if ((va == nullptr) != (vb == nullptr) || (va != nullptr && !SameValue(*va, *vb))) return false;
  }
  return SameExtraAttrs(a, b) && SameExtraAttrs(b, a);
}

}  // namespace

Status MergeCommonSubexpressions(Graph* graph, const PassContext& context) {
  const Roles roles(*graph, context);
  MR_ASSIGN_OR_RETURN(std::vector<Node*> order, TopologicalOrder(*graph));
  std::vector<Node*> stand_in(graph->max_id(), nullptr);
  absl::flat_hash_map<size_t, absl::InlinedVector<Node*, 1>> known;
  known.reserve(order.size());
  bool any = false;
  for (Node* node : order) {
    // Rewire inputs first, so that equal trees collapse.
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Endpoint e = node->input(i);
      if (stand_in[e.node->id()] != nullptr) graph->SetInput(node, i, {stand_in[e.node->id()], e.index});
    }
    for (size_t i = 0; i < node->control_inputs().size(); ++i) {
      Node* before = node->control_inputs()[i];
      if (Node* other = stand_in[before->id()]) {
        graph->RemoveControlInput(node, before);
        graph->AddControlInput(node, other);
        --i;
      }
    }
    if (!IsCandidate(*node) || roles.IsFed(node)) continue;
    auto& twins = known[HashNode(*node)];
    auto twin = std::find_if(twins.begin(), twins.end(), [&](Node* n) { return Same(*n, *node); });
    if (twin == twins.end()) {
      twins.push_back(node);
    } else if (!roles.IsKept(node)) {
      stand_in[node->id()] = *twin;
      any = true;
    }
  }
  if (!any) return absl::OkStatus();
  // Second pass for back edges, whose sources come later in the order.
  for (Node* node : order) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Endpoint e = node->input(i);
      if (stand_in[e.node->id()] != nullptr) graph->SetInput(node, i, {stand_in[e.node->id()], e.index});
    }
  }
  graph->RemoveNodes([&](const Node* node) { return stand_in[node->id()] != nullptr; });
  return absl::OkStatus();
}

}  // namespace millrace
