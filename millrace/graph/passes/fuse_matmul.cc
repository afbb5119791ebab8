#include <algorithm>

#include "millrace/graph/host_memory.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

// Fuses MatMul and Conv2D with the ops that follow them.
class ProductFuser {
 public:
  ProductFuser(Graph* graph, const PassContext& context)
      : graph_(graph), roles_(*graph, context), consumers_(ConsumersById(*graph)) {}

  static bool IsProduct(const Node& node) {
    if (node.is_type("Conv2D")) return node.AttrOr<std::string>("data_format", "NHWC") == "NHWC";
    return node.is_type("MatMul");
  }

  // Fuses product -> bias -> activation, starting from the product, as far as possible.
  Status TryFuse(Node* product) {
    // Only the host has kernels for the fused ops.
    if (!IsProduct(*product) || product->output_type(0) != DType::kFloat || fused_[product] ||
        !RunsInHostMemory(*product)) {
      return absl::OkStatus();
    }
    Node* bias = OnlyUser(product);
    if (bias == nullptr || !IsBias(*bias, *product)) return absl::OkStatus();
    Node* activation = OnlyUser(bias);
    if (activation != nullptr && (!IsActivation(*activation) || !SameDevice(*activation, *bias))) activation = nullptr;
    return Fuse(product, bias, activation);
  }

  void RemoveFused() {
    graph_->RemoveNodes([&](const Node* node) { return fused_[node]; });
  }

 private:
  static bool SameDevice(const Node& a, const Node& b) {
    return a.requested_device() == b.requested_device() && a.assigned_device() == b.assigned_device();
  }

  // The only consumer of the node's output, if the node is not fed, fetched or a target; otherwise null.
  Node* OnlyUser(const Node* node) const {
    const auto& users = consumers_[node->id()];
    if (!roles_.IsInner(node) || users.size() != 1 || users[0].slot < 0) return nullptr;
    return users[0].node;
  }

  // True for a BiasAdd, or the addition of a vector as long as the product's rows.
  bool IsBias(const Node& node, const Node& product) const {
    if (!SameDevice(node, product) || roles_.IsFed(&node)) return false;
    if (node.is_type("BiasAdd")) {
      return node.input(0).node == &product && node.AttrOr<std::string>("data_format", "NHWC") == "NHWC";
    }
    if (!node.is_type("AddV2") && !node.is_type("Add")) return false;
    const int other = node.input(0).node == &product ? 1 : 0;
    if (node.input(other).node == &product) return false;
    const PartialShape& vector = node.input(other).shape();
    const PartialShape& rows = product.output_shape(0);
    return vector.rank() == 1 && vector.dim(0) >= 0 && rows.known_rank() && rows.rank() >= 2 &&
           rows.dim(rows.rank() - 1) == vector.dim(0);
  }

  bool IsActivation(const Node& node) const { return !roles_.IsFed(&node) && node.op().Has(OpTrait::kActivation); }

  Status Fuse(Node* product, Node* bias, Node* activation) {
    Node* last = activation != nullptr ? activation : bias;
    NodeSpec spec;
    const bool is_conv = product->is_type("Conv2D");
    spec.op = is_conv ? "_FusedConv2D" : "_FusedMatMul";
    const Endpoint vector = bias->input(bias->input(0).node == product ? 1 : 0);
    spec.inputs = {product->input(0), product->input(1), vector};
    spec.device = last->requested_device();
    std::vector<std::string> ops = {"BiasAdd"};
    std::vector<std::string> origins;
    for (Node* part : {product, bias, activation}) {
      if (part == nullptr) continue;
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
    if (activation != nullptr) {
      ops.push_back(activation->type());
      if (activation->is_type("LeakyRelu")) {
        spec.attrs["leakyrelu_alpha"].set_f(activation->AttrOr<float>("alpha", 0.2f));
      }
    }
    const OpSchema& fused = *OpRegistry::Global().FindOrNull(spec.op);
    for (const auto& [name, value] : product->attrs()) {
      if (fused.FindAttr(name) != nullptr) spec.attrs[name] = value;
    }
    if (is_conv) spec.attrs["TArgs"].mutable_list()->add_type(pb::DT_FLOAT);
    spec.attrs["fused_ops"] = AttrInit(ops).value();
    spec.attrs["num_args"].set_i(1);
    MR_RETURN_IF_ERROR(graph_->ReplaceNode(last, std::move(spec)));
    graph_->SetOrigins(last, std::move(origins));
    fused_[product] = true;
    if (activation != nullptr) fused_[bias] = true;
    return absl::OkStatus();
  }

  Graph* const graph_;
  const Roles roles_;
  const std::vector<std::vector<Consumer>> consumers_;
  absl::flat_hash_map<const Node*, bool> fused_;
};

}  // namespace

Status FuseMatMul(Graph* graph, const PassContext& context) {
  for (const char* op : {"_FusedMatMul", "_FusedConv2D"}) {
    if (OpRegistry::Global().FindOrNull(op) == nullptr) return absl::OkStatus();
  }
  const bool has_product = std::any_of(graph->nodes().begin(), graph->nodes().end(),
                                       [](const Node* node) { return ProductFuser::IsProduct(*node); });
  if (!has_product) return absl::OkStatus();
  ProductFuser fuser(graph, context);
  for (Node* node : graph->nodes()) MR_RETURN_IF_ERROR(fuser.TryFuse(node));
  fuser.RemoveFused();
  return absl::OkStatus();
}

}  // namespace millrace
