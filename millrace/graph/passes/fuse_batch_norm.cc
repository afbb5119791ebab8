// Fuses batch normalisation with its neighbours in residual networks. Forward: FusedBatchNormV3, optionally the
// addition of a shortcut, and Relu become _FusedBatchNormEx. Backward: ReluGrad and FusedBatchNormGradV3 become
// _FusedBatchNormGradEx, which also returns the gradient of the shortcut.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

class BatchNormFuser {
 public:
  BatchNormFuser(Graph* graph, const PassContext& context)
      : graph_(graph), roles_(*graph, context), consumers_(ConsumersById(*graph)) {}

  Status Run() {
    MR_ASSIGN_OR_RETURN(const std::vector<Node*> order, TopologicalOrder(*graph_));
    for (size_t i = 0; i < order.size(); ++i) place_[order[i]] = static_cast<int>(i);
    for (Node* node : order) MR_RETURN_IF_ERROR(TryForward(node));
    for (Node* node : order) MR_RETURN_IF_ERROR(TryBackward(node));
    graph_->RemoveNodes([&](const Node* node) { return gone_.contains(node); });
    return absl::OkStatus();
  }

 private:
  static bool SameDevice(const Node& a, const Node& b) {
    return a.requested_device() == b.requested_device() && a.assigned_device() == b.assigned_device();
  }
  // True if the node can be merged into another: it is not fed, fetched or a target, and has no control edges.
  bool CanVanish(const Node& node) const {
    return roles_.IsInner(&node) && node.control_inputs().empty() &&
           std::none_of(consumers_[node.id()].begin(), consumers_[node.id()].end(),
                        [](const Consumer& c) { return c.slot < 0; });
  }
  // The only consumer of this output, if there is exactly one that uses it once; otherwise null.
  Node* OnlyUser(const Node& node, int output) const {
    Node* user = nullptr;
    for (const Consumer& c : consumers_[node.id()]) {
      if (c.slot < 0 || c.node->input(c.slot).index != output) continue;
      if (user != nullptr) return nullptr;
      user = c.node;
    }
    return user;
  }
  void Redirect(const Node& from, Endpoint to) {
    for (const Consumer& c : consumers_[from.id()]) graph_->SetInput(c.node, c.slot, to);
  }
  // True if `node` depends on `origin`. The search only follows nodes that come after `origin`, so it is short.
  bool DependsOn(const Node* node, const Node* origin) const {
    absl::flat_hash_set<const Node*> seen;
    std::vector<const Node*> open = {node};
    while (!open.empty()) {
      const Node* at = open.back();
      open.pop_back();
      if (at == origin) return true;
      const auto it = place_.find(at);
      if (it == place_.end() || it->second < place_.at(origin) || !seen.insert(at).second) continue;
      for (const Endpoint& input : at->inputs()) open.push_back(input.node);
      for (const Node* before : at->control_inputs()) open.push_back(before);
    }
    return false;
  }

  bool IsNorm(const Endpoint& e) const {
    if (e.index != 0 || !e.node->is_type("FusedBatchNormV3") || e.dtype() != DType::kFloat) return false;
    if (!RunsInHostMemory(*e.node)) return false;  // only the host has a kernel for the fused op
    const std::string format = e.node->AttrOr<std::string>("data_format", "NHWC");
    return roles_.IsInner(e.node) && (format == "NHWC" || format == "NCHW");
  }

  // Relus are tried in topological order, so that the producer of a side input is fused before its use.
  Status TryForward(Node* relu) {
    if (!relu->is_type("Relu") || !CanVanish(*relu)) return absl::OkStatus();
    Node* before = relu->input(0).node;
    if (!SameDevice(*before, *relu) || OnlyUser(*before, relu->input(0).index) != relu) return absl::OkStatus();
    if (IsNorm(relu->input(0))) return FuseForward(before, nullptr, {}, relu);
    if ((!before->is_type("AddV2") && !before->is_type("Add")) || !CanVanish(*before)) return absl::OkStatus();
    for (const int i : {0, 1}) {
      Node* norm = before->input(i).node;
      const Endpoint side = before->input(1 - i);
      if (IsNorm(before->input(i)) && SameDevice(*norm, *relu) && OnlyUser(*norm, 0) == before && side.node != norm &&
          side.shape().IsFullyDefined() && side.shape() == norm->output_shape(0) && !DependsOn(side.node, norm)) {
        return FuseForward(norm, before, side, relu);
      }
    }
    return absl::OkStatus();
  }

  Status FuseForward(Node* norm, Node* add, Endpoint side, Node* relu) {
    NodeSpec spec;
    spec.op = "_FusedBatchNormEx";
    spec.inputs.assign(norm->inputs().begin(), norm->inputs().end());
    if (add != nullptr) spec.inputs.push_back(side);
    spec.control_inputs.assign(norm->control_inputs().begin(), norm->control_inputs().end());
    spec.device = norm->requested_device();
    for (const auto& [name, value] : norm->attrs()) spec.attrs[name] = value;
    spec.attrs["num_side_inputs"].set_i(add != nullptr ? 1 : 0);
    spec.attrs["activation_mode"].set_s("Relu");
    std::vector<std::string> origins(norm->origins().begin(), norm->origins().end());
    for (Node* part : {add, relu}) {
      if (part == nullptr) continue;
      origins.insert(origins.end(), part->origins().begin(), part->origins().end());
      gone_.insert(part);
    }
    MR_RETURN_IF_ERROR(graph_->ReplaceNode(norm, std::move(spec)));
    graph_->SetOrigins(norm, std::move(origins));
    Redirect(*relu, Endpoint{norm, 0});
    fused_.insert(norm);
    return absl::OkStatus();
  }

  // Likewise for gradients, each with that of the normalisation it was fused with.
  Status TryBackward(Node* relu_grad) {
    if (!relu_grad->is_type("ReluGrad") || !CanVanish(*relu_grad)) return absl::OkStatus();
    const Endpoint y = relu_grad->input(1);
    if (y.index != 0 || !fused_.contains(y.node)) return absl::OkStatus();
    for (const Consumer& c : consumers_[relu_grad->id()]) {
      if (c.slot == 0 && SameDevice(*c.node, *relu_grad) && IsGradientOf(*c.node, y)) {
        return FuseBackward(c.node, relu_grad, y.node, y);
      }
    }
    return absl::OkStatus();
  }

  bool IsGradientOf(const Node& grad, Endpoint y) const {
    if (!grad.is_type("FusedBatchNormGradV3") || !roles_.IsInner(&grad) || !RunsInHostMemory(grad)) return false;
    const Node* norm = y.node;
    const bool training = norm->AttrOr<bool>("is_training", true);
    const Endpoint moments[2] = {training ? Endpoint{y.node, 3} : norm->input(3),
                                 training ? Endpoint{y.node, 4} : norm->input(4)};
    return grad.input(1) == norm->input(0) && grad.input(2) == norm->input(1) && grad.input(3) == moments[0] &&
           grad.input(4) == moments[1] && grad.AttrOr<bool>("is_training", true) == training &&
           grad.AttrOr<float>("epsilon", 0) == norm->AttrOr<float>("epsilon", 0) &&
           grad.AttrOr<std::string>("data_format", "") == norm->AttrOr<std::string>("data_format", "");
  }

  Status FuseBackward(Node* grad, Node* relu_grad, const Node* norm, Endpoint y) {
    // The gradient of the shortcut, and any other consumer of the ReluGrad, is an output of the new node. The relu's
    // mask can be recomputed from x unless there is a side input.
    const bool side = consumers_[relu_grad->id()].size() > 1 || norm->AttrOr<int64_t>("num_side_inputs", 0) > 0;
    NodeSpec spec;
    spec.op = "_FusedBatchNormGradEx";
    spec.name = graph_->UniqueName(absl::StrCat(grad->name(), "/WithRelu"));
    spec.inputs = {relu_grad->input(0)};
    for (int i = 1; i < 6; ++i) spec.inputs.push_back(grad->input(i));
    spec.inputs.push_back(norm->input(2));
    spec.inputs.push_back(y);
    spec.control_inputs.assign(grad->control_inputs().begin(), grad->control_inputs().end());
    spec.device = grad->requested_device();
    for (const auto& [name, value] : grad->attrs()) spec.attrs[name] = value;
    spec.attrs["num_side_inputs"].set_i(side ? 1 : 0);
    spec.attrs["activation_mode"].set_s("Relu");
    std::vector<std::string> origins(relu_grad->origins().begin(), relu_grad->origins().end());
    origins.insert(origins.end(), grad->origins().begin(), grad->origins().end());
    MR_ASSIGN_OR_RETURN(Node * both, graph_->AddNode(std::move(spec)));
    graph_->SetAssignedDevice(both, grad->assigned_device());
    graph_->SetOrigins(both, std::move(origins));
    for (int i = 0; i < 5; ++i) graph_->SetOutputShape(both, i, grad->output_shape(i));
    if (side) graph_->SetOutputShape(both, 5, relu_grad->output_shape(0));
    for (const Consumer& c : consumers_[grad->id()]) {
      if (c.slot < 0) {
        graph_->RemoveControlInput(c.node, grad);
        graph_->AddControlInput(c.node, both);
      } else {
        graph_->SetInput(c.node, c.slot, Endpoint{both, c.node->input(c.slot).index});
      }
    }
    for (const Consumer& c : consumers_[relu_grad->id()]) {
      if (c.node != grad) graph_->SetInput(c.node, c.slot, Endpoint{both, 5});
    }
    gone_.insert(grad);
    gone_.insert(relu_grad);
    return absl::OkStatus();
  }

  Graph* const graph_;
  const Roles roles_;
  const std::vector<std::vector<Consumer>> consumers_;
  absl::flat_hash_map<const Node*, int> place_;
  absl::flat_hash_set<const Node*> fused_;  // normalisations that were fused with a relu
  absl::flat_hash_set<const Node*> gone_;
};

}  // namespace

Status FuseBatchNorm(Graph* graph, const PassContext& context) {
  const bool has_any = std::any_of(graph->nodes().begin(), graph->nodes().end(),
                                   [](const Node* node) { return node->is_type("FusedBatchNormV3"); });
  if (!has_any || OpRegistry::Global().FindOrNull("_FusedBatchNormEx") == nullptr) return absl::OkStatus();
  return BatchNormFuser(graph, context).Run();
}

}  // namespace millrace
