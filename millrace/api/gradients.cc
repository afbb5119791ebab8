#include "millrace/api/gradients.h"

#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"
#include "millrace/graph/gradient.h"

namespace millrace {
namespace {

// The endpoint to differentiate by: for a variable its handle, so that every read is covered.
Endpoint SourceOf(const Scope& scope, const Output& x) {
  const OpSchema* read = OpRegistry::Global().FindOrNull("ReadVariableOp");
  if (read == nullptr || read->gradient_fn == nullptr || x.empty() || !x.node()->is_type("ReadVariableOp")) {
    return x.endpoint();
  }
  for (const api_internal::VariableNodes& variable : api_internal::StateOf(scope).variables) {
    if (variable.value == x.endpoint()) return variable.handle->output(0);
  }
  return x.endpoint();
}

Status EndpointsOf(const std::vector<Output>& outputs, const char* what, std::vector<Endpoint>* endpoints) {
  for (const Output& output : outputs) {
    if (output.empty()) return InvalidArgument("Gradients: ", what, "[", endpoints->size(), "] is empty");
    endpoints->push_back(output.endpoint());
  }
  return absl::OkStatus();
}

StatusOr<std::vector<Gradient>> Build(const Scope& scope, const std::vector<Output>& ys, const std::vector<Output>& xs,
                                      const GradientsOptions& options) {
  std::vector<Endpoint> y_ends, x_ends, stops, grads;
  MR_RETURN_IF_ERROR(EndpointsOf(ys, "ys", &y_ends));
  MR_RETURN_IF_ERROR(EndpointsOf(xs, "xs", &x_ends));
  MR_RETURN_IF_ERROR(EndpointsOf(options.stop_gradients, "stop_gradients", &stops));
  MR_RETURN_IF_ERROR(EndpointsOf(options.grad_ys, "grad_ys", &grads));
  if (!grads.empty() && grads.size() != ys.size()) {
    return InvalidArgument("Gradients: ", grads.size(), " grad_ys for ", ys.size(), " ys");
  }
  for (size_t i = 0; i < xs.size(); ++i) x_ends[i] = SourceOf(scope, xs[i]);
  GradientOptions inner{.grad_ys = std::vector<Grad>(grads.begin(), grads.end()),
                        .stop_gradients = stops,
                        .name = api_internal::TakeName(scope, scope.op_name().empty() ? "gradients" : scope.op_name())};
  const int before = scope.graph()->num_nodes();
  MR_ASSIGN_OR_RETURN(std::vector<Grad> found, AddGradients(scope.graph(), y_ends, x_ends, inner));
  // The scope's device settings apply to all its nodes, including those that no builder added.
  const api_internal::ScopeSettings& settings = api_internal::SettingsOf(scope);
  const bool says_where =
      !settings.device.empty() || !settings.device_functions.empty() || !settings.colocate_with.empty();
  for (int i = before; says_where && i < scope.graph()->num_nodes(); ++i) {
    Node* node = scope.graph()->nodes()[i];
    if (options.colocate_with_ops && !node->requested_device().empty()) continue;
    MR_RETURN_IF_ERROR(api_internal::AskForDevice(settings, node));
  }

  const Scope at = scope.WithoutOpName();
  std::vector<Gradient> result;
  for (const Grad& grad : found) {
    if (grad.IsSlices()) {
      result.push_back(IndexedSlices{Output(at, grad.values), Output(at, grad.indices), Output(at, grad.dense_shape)});
    } else {
      result.push_back(Output(at, grad.dense));
    }
  }
  return result;
}

}  // namespace

Output Gradient::ToDense(const Scope& scope) const {
  if (!is_slices()) return dense_;
  const Output rows =
      Op(scope.WithoutOpName(), "StridedSlice",
         {slices_->dense_shape, std::vector<int32_t>{0}, std::vector<int32_t>{1}, std::vector<int32_t>{1}},
         {{"shrink_axis_mask", 1}});
  return Op(scope, "UnsortedSegmentSum", {slices_->values, slices_->indices, rows});
}

std::vector<Gradient> Gradients(const Scope& scope, const std::vector<Output>& ys, const std::vector<Output>& xs,
                                const GradientsOptions& options) {
  if (!scope.ok()) return std::vector<Gradient>(xs.size());
  StatusOr<std::vector<Gradient>> result = Build(scope, ys, xs, options);
  if (result.ok()) return *std::move(result);
  scope.UpdateStatus(result.status());
  return std::vector<Gradient>(xs.size());
}

}  // namespace millrace
