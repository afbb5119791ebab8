#include "millrace/graph/gradient.h"

#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/graph/control_flow_gradient.h"

namespace millrace {
namespace {

// Gradients flow along these; integers, bools and strings end them.
bool CarriesGradient(DType type) {
  const DType base = BaseType(type);
  return IsFloating(base) || IsComplex(base) || base == DType::kResource;
}

bool EndsGradient(const Node& node) {
  return node.op().not_differentiable || node.is_type("StopGradient");
}

// One call of AddGradients: walks from the ys back to the xs in reverse order of computation, so
// that every use of a tensor has given its part before the tensor's own node is asked.
class Backward {
 public:
  Backward(Graph* graph, const std::vector<Endpoint>& ys, const std::vector<Endpoint>& xs,
           const GradientOptions& options)
      : graph_(graph), ys_(ys), xs_(xs), options_(options), sums_(graph) {
    sums_.prefix = options.name;
    sums_.device = options.device;
    for (const Endpoint& e : options.stop_gradients) stopped_.insert(e);
  }

  StatusOr<std::vector<Grad>> Run() {
    MR_RETURN_IF_ERROR(CheckArguments());
    MR_ASSIGN_OR_RETURN(std::vector<Node*> order, TopologicalOrder(*graph_));
    MarkReached(order);
    MR_RETURN_IF_ERROR(Seed());
    for (auto it = order.rbegin(); it != order.rend(); ++it) MR_RETURN_IF_ERROR(Visit(*it));
    std::vector<Grad> result;
    for (const Endpoint& x : xs_) result.push_back(Total(x));
    MR_RETURN_IF_ERROR(sums_.status());
    return result;
  }

 private:
  Status CheckEndpoint(const char* what, size_t i, const Endpoint& e) {
    if (e.node == nullptr || e.index < 0 || e.index >= e.node->num_outputs()) {
      return InvalidArgument("Gradients: ", what, "[", i, "] is no tensor of the graph");
    }
    return absl::OkStatus();
  }

  Status CheckArguments() {
    for (size_t i = 0; i < ys_.size(); ++i) MR_RETURN_IF_ERROR(CheckEndpoint("ys", i, ys_[i]));
    for (size_t i = 0; i < xs_.size(); ++i) MR_RETURN_IF_ERROR(CheckEndpoint("xs", i, xs_[i]));
    if (!options_.grad_ys.empty() && options_.grad_ys.size() != ys_.size()) {
      return InvalidArgument("Gradients: ", ys_.size(), " ys but ", options_.grad_ys.size(),
                             " grad_ys");
    }
    for (size_t i = 0; i < options_.grad_ys.size(); ++i) {
      const Grad& g = options_.grad_ys[i];
      if (g.IsNone()) continue;
      const Endpoint value = g.IsSlices() ? g.values : g.dense;
      if (BaseType(value.dtype()) != BaseType(ys_[i].dtype())) {
        return InvalidArgument("Gradients: grad_ys[", i, "] is ", DTypeName(value.dtype()), " but ",
                               ys_[i].name(), " is ", DTypeName(ys_[i].dtype()));
      }
    }
    return absl::OkStatus();
  }

  // A tensor is reached when some x influences it through differentiable nodes.
  bool IsReached(const Endpoint& e) const {
    return CarriesGradient(e.dtype()) && (reached_node_[e.node->id()] || is_x_.contains(e));
  }

  void MarkReached(const std::vector<Node*>& order) {
    for (const Endpoint& x : xs_) is_x_.insert(x);
    reached_node_.assign(static_cast<size_t>(graph_->max_id()), false);
    for (const Node* node : order) {
      if (EndsGradient(*node)) continue;
      for (const Endpoint& e : node->inputs()) {
        // What is stopped hands on nothing of what lies behind it, but is an x like any other.
        if (IsReached(e) && (!stopped_.contains(e) || is_x_.contains(e))) {
          reached_node_[node->id()] = true;
          break;
        }
      }
    }
  }

  Status Seed() {
    for (size_t i = 0; i < ys_.size(); ++i) {
      const Endpoint& y = ys_[i];
      if (!IsReached(y)) continue;
      Grad grad;
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

  // The sum of what flowed back to `e`, made once and kept.
  Grad Total(const Endpoint& e) {
    auto it = parts_.find(e);
    if (it == parts_.end()) return {};
    if (it->second.size() > 1) {
      Grad sum = Sum(it->second);
      it = parts_.find(e);
      it->second = {sum};
    }
    return it->second[0];
  }

  Grad Sum(const std::vector<Grad>& parts) {
    bool all_slices = true;
    for (const Grad& g : parts) all_slices &= g.IsSlices();
    if (all_slices) return SumSlices(parts);
    std::vector<Endpoint> dense;
    for (const Grad& g : parts) dense.push_back(Densify(sums_, g));
    return sums_.Op("AddN", dense);
  }

  Grad SumSlices(const std::vector<Grad>& parts) {
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
    return Grad::Slices(sums_.Op("ConcatV2", values), sums_.Op("ConcatV2", indices),
                        parts[0].dense_shape);
  }

  Status Visit(Node* node) {
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
    GradientContext context(graph_, node, std::move(output_grads));
    context.prefix = absl::StrCat(options_.name, "/", node->name(), "_grad");
    context.device = options_.device;
    Status status = CallGradient(context);
    if (status.ok()) status = context.status();
    if (status.ok()) status = Collect(context);
    if (status.ok()) return status;
    return WithPrefix(
        absl::StrCat("Gradient of {{node ", node->name(), "}} (op ", node->type(), "): "), status);
  }

  static Status CallGradient(GradientContext& context) {
    const Node& node = *context.node();
    if (node.op().gradient_fn != nullptr) return node.op().gradient_fn(context);
    if (node.IsSwitch()) return SwitchGradient(context);
    if (node.IsMerge()) return MergeGradient(context);
    if (node.IsControlFlow()) return Unimplemented("gradients through loops are not supported");
    return Unimplemented("the op has no gradient");
  }

  // Hands the gradients that a function made to the tensors they are of.
  Status Collect(const GradientContext& context) {
    const Node& node = *context.node();
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Grad& grad = context.input_grads()[i];
      const Endpoint& e = node.input(i);
      if (grad.IsNone() || !IsReached(e)) continue;
      const DType type = BaseType(e.dtype());
      const DType given = BaseType((grad.IsSlices() ? grad.values : grad.dense).dtype());
      if (type != given && type != DType::kResource) {
        return Internal("the gradient of input ", i, " is ", DTypeName(given), " but the input is ",
                        DTypeName(type));
      }
      parts_[e].push_back(grad);
    }
    return absl::OkStatus();
  }

  Graph* const graph_;
  const std::vector<Endpoint>& ys_;
  const std::vector<Endpoint>& xs_;
  const GradientOptions& options_;
  GraphBuilder sums_;
  absl::flat_hash_set<Endpoint> stopped_;
  absl::flat_hash_set<Endpoint> is_x_;
  std::vector<bool> reached_node_;
  absl::flat_hash_map<Endpoint, std::vector<Grad>> parts_;
};

}  // namespace

StatusOr<std::vector<Grad>> AddGradients(Graph* graph, const std::vector<Endpoint>& ys,
                                         const std::vector<Endpoint>& xs,
                                         const GradientOptions& options) {
  return Backward(graph, ys, xs, options).Run();
}

}  // namespace millrace
