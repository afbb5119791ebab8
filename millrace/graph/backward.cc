#include "millrace/graph/backward.h"

#include "millrace/graph/control_flow_gradient.h"
#include "millrace/graph/passes/function_inliner.h"

namespace millrace {
namespace {

// Types that gradients flow through, unlike integers, bools and strings. TensorLists are variants.
bool CarriesGradient(DType type) {
  const DType base = BaseType(type);
  return IsFloating(base) || IsComplex(base) || base == DType::kResource || base == DType::kVariant;
}

Status CallGradient(GradientContext& context) {
  const Node& node = *context.node();
  if (node.op().gradient_fn != nullptr) return node.op().gradient_fn(context);
  if (node.IsSwitch()) return SwitchGradient(context);
  if (node.IsMerge()) return MergeGradient(context);
  return Unimplemented("the op has no gradient");
}

}  // namespace

Backward::Backward(Graph* graph, const std::vector<Endpoint>& ys, const std::vector<Endpoint>& xs,
                   const GradientOptions& options)
    : graph_(graph), ys_(ys), xs_(xs), options_(options), sums_(graph) {
  sums_.prefix = options.name;
  for (const Endpoint& e : options.stop_gradients) stopped_.insert(e);
}

StatusOr<std::vector<Grad>> Backward::Run() {
  MR_RETURN_IF_ERROR(CheckArguments());
  for (const Endpoint& x : xs_) is_x_.insert(x);
  MR_RETURN_IF_ERROR(ExpandCalls());
  first_new_id_ = graph_->max_id();
  MR_ASSIGN_OR_RETURN(std::vector<Node*> order, TopologicalOrder(*graph_));
  MR_ASSIGN_OR_RETURN(forest_, LoopForest::Find(*graph_));
  for (const auto* tensors : {&ys_, &xs_}) {
    for (const Endpoint& e : *tensors) {
      if (forest_.OutputLoopOf(e.node) == LoopForest::kRoot) continue;
      return InvalidArgument("Gradients: ", e.name(), " is within the loop '",
                             forest_.loop(forest_.OutputLoopOf(e.node)).frame_name,
                             "'; only values that leave the loop have gradients");
    }
  }
  for (int loop = LoopForest::kRoot; loop < static_cast<int>(forest_.loops().size()); ++loop) {
    MR_ASSIGN_OR_RETURN(orders_[loop], forest_.Order(*graph_, loop));
    if (loop == LoopForest::kRoot) continue;
    for (const Loop::Variable& variable : forest_.loop(loop).variables) {
      border_.insert({variable.merge, variable.gate, variable.next});
    }
  }
  MarkReached(order);
  MR_RETURN_IF_ERROR(Seed());
  MR_RETURN_IF_ERROR(VisitAll(LoopForest::kRoot));
  std::vector<Grad> result;
  for (const Endpoint& x : xs_) result.push_back(Total(x));
  MR_RETURN_IF_ERROR(sums_.status());
  return result;
}

// Inlines the calls between the xs and the ys under the same names, so that their bodies can be differentiated.
Status Backward::ExpandCalls() {
  bool any = false;
  for (const Node* node : graph_->nodes()) any |= FunctionInliner::IsCall(*node);
  if (!any) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const std::vector<Node*> order, TopologicalOrder(*graph_));
  MarkReached(order);
  std::vector<bool> wanted(static_cast<size_t>(graph_->max_id()), false);
  std::vector<Node*> stack;
  const auto want = [&](Node* node) {
    if (wanted[node->id()] || !reached_node_[node->id()]) return;
    wanted[node->id()] = true;
    stack.push_back(node);
  };
  for (const Endpoint& y : ys_) want(y.node);
  std::vector<Node*> calls;
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (const Endpoint& e : node->inputs()) want(e.node);
    if (!FunctionInliner::IsCall(*node) || node->op().not_differentiable) continue;
    // A function with a custom gradient is not inlined.
    const pb::AttrValue* f = node->FindAttr("f");
    if (f != nullptr && !graph_->FindGradientFunction(f->func().name()).empty()) continue;
    calls.push_back(node);
  }
  if (calls.empty()) return absl::OkStatus();
  MR_RETURN_IF_ERROR(FunctionInliner(graph_, nullptr).ExpandInPlace(calls));
  return InferShapes(graph_, /*lenient=*/true);
}

Status Backward::CheckEndpoint(const char* what, size_t i, const Endpoint& e) const {
  if (e.node == nullptr || e.index < 0 || e.index >= e.node->num_outputs()) {
    return InvalidArgument("Gradients: ", what, "[", i, "] is not a tensor of the graph");
  }
  return absl::OkStatus();
}

Status Backward::CheckArguments() const {
  for (size_t i = 0; i < ys_.size(); ++i) MR_RETURN_IF_ERROR(CheckEndpoint("ys", i, ys_[i]));
  for (size_t i = 0; i < xs_.size(); ++i) MR_RETURN_IF_ERROR(CheckEndpoint("xs", i, xs_[i]));
  if (!options_.grad_ys.empty() && options_.grad_ys.size() != ys_.size()) {
    return InvalidArgument("Gradients: ", ys_.size(), " ys but ", options_.grad_ys.size(), " grad_ys");
  }
  for (size_t i = 0; i < options_.grad_ys.size(); ++i) {
    const Grad& g = options_.grad_ys[i];
    if (g.IsNone()) continue;
    const Endpoint value = g.IsSlices() ? g.values : g.dense;
    if (BaseType(value.dtype()) != BaseType(ys_[i].dtype())) {
      return InvalidArgument("Gradients: grad_ys[", i, "] is ", DTypeName(value.dtype()), " but ", ys_[i].name(),
                             " is ", DTypeName(ys_[i].dtype()));
    }
  }
  return absl::OkStatus();
}

bool Backward::IsReached(const Endpoint& e) const {
  return CarriesGradient(e.dtype()) && (reached_node_[e.node->id()] || is_x_.contains(e));
}

// A tensor is reached when some x influences it through differentiable nodes.
void Backward::MarkReached(const std::vector<Node*>& order) {
  reached_node_.assign(static_cast<size_t>(graph_->max_id()), false);
  // Without loops one pass suffices; through a loop's back edge a value may reach nodes earlier in the order.
  for (bool again = true; again;) {
    again = false;
    for (const Node* node : order) {
      if (reached_node_[node->id()] || node->op().not_differentiable) continue;
      for (const Endpoint& e : node->inputs()) {
        // A stopped tensor blocks what is behind it, but may itself be an x.
        if (!IsReached(e) || (stopped_.contains(e) && !is_x_.contains(e))) continue;
        reached_node_[node->id()] = true;
        again |= node->IsNextIteration();
        break;
      }
    }
  }
}

Status Backward::Seed() {
  for (size_t i = 0; i < ys_.size(); ++i) {
    const Endpoint& y = ys_[i];
    if (!IsReached(y)) continue;
    Grad grad;
    sums_.device = DeviceFor(*y.node);
    if (!options_.grad_ys.empty() && !options_.grad_ys[i].IsNone()) {
      grad = options_.grad_ys[i];
    } else if (BaseType(y.dtype()) == DType::kResource) {
      return InvalidArgument("Gradients: ys[", i, "] ", y.name(), " is a resource, not a number");
    } else if (y.shape().known_rank() && y.shape().rank() == 0) {
      grad = sums_.ScalarLike(1.0, y.dtype());
    } else {
      grad = sums_.OnesLike(y);
    }
    MR_RETURN_IF_ERROR(sums_.status());
    parts_[y].push_back(grad);
  }
  return absl::OkStatus();
}

Grad Backward::Total(const Endpoint& e) {
  auto it = parts_.find(e);
  if (it == parts_.end()) return {};
  if (it->second.size() > 1) {
    const int first_id = graph_->max_id();
    sums_.device = DeviceFor(*e.node);
    Grad sum = Sum(it->second);
    Adopt(first_id);
    it = parts_.find(e);
    it->second = {sum};
  }
  return it->second[0];
}

Grad Backward::Sum(const std::vector<Grad>& parts) {
  bool all_slices = true;
  for (const Grad& g : parts) all_slices &= g.IsSlices();
  if (all_slices) return SumSlices(parts);
  std::vector<Endpoint> dense;
  for (const Grad& g : parts) dense.push_back(Densify(sums_, g));
  return sums_.Op("AddN", dense);
}

Grad Backward::SumSlices(const std::vector<Grad>& parts) {
  bool same_index_type = true;
  for (const Grad& g : parts) same_index_type &= g.indices.dtype() == parts[0].indices.dtype();
  std::vector<Endpoint> values, indices;
  for (const Grad& g : parts) {
    values.push_back(g.values);
    indices.push_back(same_index_type ? g.indices : sums_.Cast(g.indices, DType::kInt64));
  }
  const Endpoint axis = sums_.Scalar<int32_t>(0);
  values.push_back(axis);
  indices.push_back(axis);
  return Grad::Slices(sums_.Op("ConcatV2", values), sums_.Op("ConcatV2", indices), parts[0].dense_shape);
}

Endpoint Backward::DenseTotal(const Endpoint& e) {
  const Grad total = Total(e);
  if (!total.IsSlices()) return total.dense;
  const int first_id = graph_->max_id();
  sums_.device = DeviceFor(*e.node);
  const Endpoint dense = Densify(sums_, total);
  Adopt(first_id);
  return dense;
}

Status Backward::VisitAll(int loop) {
  const std::vector<LoopForest::Item>& order = orders_[loop];
  if (loop != LoopForest::kRoot) region_->paths.emplace(forest_, order);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (it->node == nullptr) {
      MR_RETURN_IF_ERROR(VisitLoop(it->loop));
    } else if (!border_.contains(it->node)) {
      MR_RETURN_IF_ERROR(Visit(it->node));
    }
  }
  return absl::OkStatus();
}

Status Backward::Visit(Node* node) {
  if (!reached_node_[node->id()]) return absl::OkStatus();
  std::vector<Grad> output_grads(static_cast<size_t>(node->num_outputs()));
  bool any = false;
  for (int i = 0; i < node->num_outputs(); ++i) {
    const Endpoint e = node->output(i);
    if (stopped_.contains(e) || !CarriesGradient(e.dtype())) continue;
    output_grads[i] = Total(e);
    any |= !output_grads[i].IsNone();
  }
  MR_RETURN_IF_ERROR(sums_.status());
  if (!any) return absl::OkStatus();
  const int first_id = graph_->max_id();
  GradientContext context(graph_, node, std::move(output_grads));
  context.prefix = absl::StrCat(options_.name, "/", node->name(), "_grad");
  context.device = DeviceFor(*node);
  Status status = CallGradient(context);
  if (status.ok()) status = context.status();
  Adopt(first_id);
  if (status.ok()) status = Collect(context);
  if (status.ok()) return status;
  return WithPrefix(absl::StrCat("Gradient of {{node ", node->name(), "}} (op ", node->type(), "): "), status);
}

// Adds the gradients that a gradient function computed to the node's input tensors.
Status Backward::Collect(const GradientContext& context) {
  const Node& node = *context.node();
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Grad& grad = context.input_grads()[i];
    const Endpoint& e = node.input(i);
    if (grad.IsNone() || !IsReached(e)) continue;
    const DType type = BaseType(e.dtype());
    const DType given = BaseType((grad.IsSlices() ? grad.values : grad.dense).dtype());
    if (type != given && type != DType::kResource) {
      return Internal("the gradient of input ", i, " is ", DTypeName(given), " but the input is ", DTypeName(type));
    }
    parts_[e].push_back(grad);
  }
  return absl::OkStatus();
}

}  // namespace millrace
