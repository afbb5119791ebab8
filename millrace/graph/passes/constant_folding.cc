#include <algorithm>

#include "millrace/graph/passes/roles.h"
#include "millrace/graph/passes/shape_constants.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace {
namespace {

// Larger results are not folded.
constexpr size_t kMaxBytes = 10 << 20;
// Above this size, a result must not be much larger than its inputs: a Fill, for example, is cheaper to recompute than
// to store.
constexpr size_t kGrowthFloor = 64 << 10;
constexpr size_t kMaxGrowth = 4;

bool IsFoldableType(DType t) { return !IsRef(t) && t != DType::kResource && t != DType::kVariant; }

class Folder {
 public:
  Folder(Graph* graph, const PassContext& context)
      : graph_(graph), context_(context), roles_(*graph, context), consumers_(ConsumersById(*graph)) {}

  Status Run() {
    MR_ASSIGN_OR_RETURN(std::vector<Node*> order, TopologicalOrder(*graph_));
    MarkMattering(order);
    const ShapeContext::ConstantLookup lookup = [this](Endpoint e) { return Constant(e); };
    for (Node* node : order) {
      if (!MayFold(*node)) continue;
      std::vector<Tensor> outputs;
      if (!ConstantsFromShapes(*node, consumers_, roles_, lookup, &outputs) && !Evaluate(*node, &outputs)) {
        continue;
      }
      if (WorthFolding(*node, outputs)) MR_RETURN_IF_ERROR(Replace(node, std::move(outputs)));
    }
    return absl::OkStatus();
  }

 private:
  bool MayFold(const Node& node) const {
    if (node.op().is_stateful || node.IsControlFlow() || node.num_inputs() == 0 || node.num_outputs() == 0 ||
        roles_.IsFed(&node) || node.is_type("PlaceholderWithDefault")) {
      return false;
    }
    // Whether an output of a Switch is alive is known only at run time.
    for (const Endpoint& e : node.inputs()) {
      if (e.node->IsSwitch()) return false;
    }
    // A node with several outputs cannot be replaced in place by a Const.
    if (node.num_outputs() > 1 && roles_.IsKept(&node)) return false;
    return std::all_of(node.output_types().begin(), node.output_types().end(), IsFoldableType);
  }

  // The value of a Const; null if `e` is not a Const or is too large.
  const Tensor* Constant(const Endpoint& e) {
    if (!e.node->is_type("Const") || e.node->is_detached() || roles_.IsFed(e.node)) return nullptr;
    auto [it, is_new] = constants_.try_emplace(e.node->id());
    if (is_new) {
      const pb::AttrValue* value = e.node->FindAttr("value");
      if (value != nullptr && value->has_tensor() && value->tensor().ByteSizeLong() <= kMaxBytes) {
        StatusOr<Shape> shape = Shape::FromProto(value->tensor().tensor_shape());
        if (shape.ok() && shape->num_elements() <= static_cast<int64_t>(kMaxBytes)) {
          StatusOr<Tensor> tensor = TensorFromProto(value->tensor());
          if (tensor.ok() && tensor->dtype() == e.dtype()) it->second = *std::move(tensor);
        }
      }
    }
    return it->second.IsInitialized() ? &it->second : nullptr;
  }

  bool Evaluate(const Node& node, std::vector<Tensor>* outputs) {
    if (context_.evaluate == nullptr) return false;
    for (const Endpoint& e : node.inputs()) {
      if (!e.node->is_type("Const")) return false;
    }
    int64_t bytes = 0;
    for (int i = 0; i < node.num_outputs(); ++i) {
      const int64_t n = node.output_shape(i).num_elements();
      if (n < 0 && node.op().Has(OpTrait::kUnboundedOutput)) return false;
      if (n > static_cast<int64_t>(kMaxBytes)) return false;
      bytes += std::max<int64_t>(n, 0) * static_cast<int64_t>(SizeOf(node.output_type(i)));
    }
    if (bytes > static_cast<int64_t>(kMaxBytes)) return false;
    std::vector<Tensor> inputs;
    for (const Endpoint& e : node.inputs()) {
      const Tensor* value = Constant(e);
      if (value == nullptr) return false;
      inputs.push_back(*value);
    }
    // A failing node is not an error here: it fails when it runs, if it ever does.
    StatusOr<std::vector<Tensor>> result = context_.evaluate(node, inputs);
    if (!result.ok() || result->size() != static_cast<size_t>(node.num_outputs())) return false;
    *outputs = *std::move(result);
    return true;
  }

  bool WorthFolding(const Node& node, const std::vector<Tensor>& outputs) {
    size_t in = 0, out = 0;
    for (const Endpoint& e : node.inputs()) {
      const Tensor* value = Constant(e);
      if (value != nullptr) in += value->TotalBytes();
    }
    for (const Tensor& t : outputs) out += t.TotalBytes();
    return out <= kMaxBytes && (out <= kGrowthFloor || out <= kMaxGrowth * in);
  }

  // Marks nodes whose execution is observable apart from their value: they, or nodes before them, are stateful or may
  // be dead.
  void MarkMattering(const std::vector<Node*>& order) {
    matters_.assign(graph_->max_id(), false);
    for (const Node* node : order) {
      bool matters = node->IsControlFlow() || (node->op().is_stateful && !node->op().Has(OpTrait::kReadsVariable));
      for (const Endpoint& e : node->inputs()) matters |= matters_[e.node->id()];
      for (const Node* before : node->control_inputs()) matters |= matters_[before->id()];
      matters_[node->id()] = matters;
    }
  }

  // A folded constant is alive exactly when the node was: it gets the control inputs of the node and of its constant
  // inputs and, if liveness matters, waits for a non-constant input (of a Shape).
  std::vector<Node*> Waits(const Node& node) {
    std::vector<Node*> waits(node.control_inputs().begin(), node.control_inputs().end());
    const auto add = [&](Node* before) {
      if (std::find(waits.begin(), waits.end(), before) == waits.end()) waits.push_back(before);
    };
    for (const Endpoint& e : node.inputs()) {
      if (e.node->is_detached()) continue;
      if (!e.node->is_type("Const")) {
        if (matters_[e.node->id()]) add(e.node);
        continue;
      }
      for (Node* before : e.node->control_inputs()) add(before);
    }
    return waits;
  }

  NodeSpec ConstSpec(const Node& node, const Tensor& value) {
    NodeSpec spec;
    spec.op = "Const";
    spec.device = node.requested_device();
    spec.control_inputs = Waits(node);
    spec.attrs["dtype"].set_type(static_cast<pb::DataType>(value.dtype()));
    TensorToProto(value, spec.attrs["value"].mutable_tensor());
    for (const auto& [name, attr] : node.attrs()) {
      if (name[0] == '_') spec.attrs[name] = attr;
    }
    return spec;
  }

  Status Replace(Node* node, std::vector<Tensor> outputs) {
    for (int i = 0; i < node->num_outputs(); ++i) {
      if (outputs[i].dtype() != node->output_type(i)) return absl::OkStatus();
    }
    if (node->num_outputs() == 1) {
      MR_RETURN_IF_ERROR(graph_->ReplaceNode(node, ConstSpec(*node, outputs[0])));
      graph_->SetOutputShape(node, 0, outputs[0].shape());
      constants_[node->id()] = std::move(outputs[0]);
      return absl::OkStatus();
    }
    std::vector<Node*> parts;
    for (int i = 0; i < node->num_outputs(); ++i) {
      NodeSpec spec = ConstSpec(*node, outputs[i]);
      spec.name = graph_->UniqueName(absl::StrCat(node->name(), "/output_", i));
      MR_ASSIGN_OR_RETURN(Node * part, graph_->AddNode(std::move(spec)));
      graph_->SetAssignedDevice(part, node->assigned_device());
      graph_->SetOutputShape(part, 0, outputs[i].shape());
      graph_->SetOrigins(part, {node->origins().begin(), node->origins().end()});
      constants_[part->id()] = outputs[i];
      parts.push_back(part);
    }
    for (const Consumer& c : consumers_[node->id()]) {
      // The next pruning removes the node itself unless it has control outputs.
      if (c.slot >= 0 && c.node->num_inputs() > c.slot && c.node->input(c.slot).node == node) {
        graph_->SetInput(c.node, c.slot, parts[c.node->input(c.slot).index]->output(0));
      }
    }
    return absl::OkStatus();
  }

  Graph* const graph_;
  const PassContext& context_;
  const Roles roles_;
  const std::vector<std::vector<Consumer>> consumers_;
  absl::flat_hash_map<int, Tensor> constants_;
  std::vector<bool> matters_;  // by id
};

}  // namespace

Status FoldConstants(Graph* graph, const PassContext& context) { return Folder(graph, context).Run(); }

}  // namespace millrace
