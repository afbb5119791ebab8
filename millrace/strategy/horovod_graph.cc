// The graph side of horovod.h: nodes, the optimizer and the hook.
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/collective/reduction.h"
#include "millrace/strategy/horovod.h"

namespace millrace::hvd {
namespace {

// Graphs are made after Init, as the number of ranks matters for some of them.
bool CheckInitialized(const Scope& scope, const char* caller) {
  if (IsInitialized()) return true;
  scope.UpdateStatus(FailedPrecondition("hvd::", caller, " was called before hvd::Init"));
  return false;
}

bool IsCompressed(DType dtype, Compression compression) {
  return compression == Compression::kFp16 && (dtype == DType::kFloat || dtype == DType::kDouble);
}

// Unless the scope has a name for the node: "allreduce_dense/kernel", which says in a trace what it belongs to.
Scope Named(const Scope& scope, const char* verb, const Output& tensor) {
  return scope.op_name().empty() ? scope.WithOpName(absl::StrCat(verb, "_", tensor.node()->name())) : scope;
}

}  // namespace

Output Allreduce(const Scope& scope, const Output& tensor, const AllreduceOptions& options) {
  if (!CheckInitialized(scope, "Allreduce") || tensor.empty()) return {};
  const DType dtype = tensor.dtype();
  const bool compressed = IsCompressed(dtype, options.compression);
  const Output sent = compressed ? Op(scope, "Cast", {tensor}, {{"DstT", DType::kHalf}}) : tensor;
  const Scope named = options.name.empty() ? Named(scope, "allreduce", tensor) : scope.WithOpName(options.name);
  const Output got =
      Op(named, "MillraceAllreduce", {sent}, {{"reduction", std::string(collective::ReductionName(options.op))}});
  return compressed ? Op(scope, "Cast", {got}, {{"DstT", dtype}}) : got;
}

IndexedSlices Allreduce(const Scope& scope, const IndexedSlices& slices, const AllreduceOptions& options) {
  if (!CheckInitialized(scope, "Allreduce") || slices.values.empty()) return {};
  if (options.op != kSum && options.op != kAverage) {
    scope.UpdateStatus(InvalidArgument("sparse gradients of several ranks have a sum and an average, but no ",
                                       collective::ReductionName(options.op)));
    return {};
  }
  const DType dtype = slices.values.dtype();
  const bool compressed = IsCompressed(dtype, options.compression);
  Output values = compressed ? Op(scope, "Cast", {slices.values}, {{"DstT", DType::kHalf}}) : slices.values;
  values = Allgather(scope, values);
  if (compressed) values = Op(scope, "Cast", {values}, {{"DstT", dtype}});
  if (options.op == kAverage) {
    const Output size = Op(scope, "Cast", {static_cast<float>(Size())}, {{"DstT", dtype}});
    values = Op(scope, "RealDiv", {values, size});
  }
  return {.values = values, .indices = Allgather(scope, slices.indices), .dense_shape = slices.dense_shape};
}

Output Allgather(const Scope& scope, const Output& tensor) {
  if (!CheckInitialized(scope, "Allgather") || tensor.empty()) return {};
  return Op(Named(scope, "allgather", tensor), "MillraceAllgather", {tensor});
}

Output Broadcast(const Scope& scope, const Output& tensor, int root_rank) {
  if (!CheckInitialized(scope, "Broadcast") || tensor.empty()) return {};
  if (root_rank < 0 || root_rank >= Size()) {
    scope.UpdateStatus(
        InvalidArgument("there is no rank ", root_rank, " to broadcast from: there are ", Size(), " ranks"));
    return {};
  }
  return Op(Named(scope, "broadcast", tensor), "MillraceBroadcast", {tensor}, {{"root_rank", int64_t{root_rank}}});
}

Operation BroadcastVariables(const Scope& scope, const std::vector<Var>& variables, int root_rank) {
  const Scope inner = scope.SubScope("broadcast_variables");
  std::vector<Operation> assignments;
  for (const Var& variable : variables) {
    const Output value = Broadcast(inner.WithOpName(variable.var_name()), variable.Read(inner), root_rank);
    assignments.push_back(variable.Assign(inner, value));
  }
  return Group(scope.WithOpName("broadcast_variables"), assignments);
}

Operation BroadcastGlobalVariables(const Scope& scope, int root_rank) {
  return hvd::BroadcastVariables(scope, GlobalVariables(scope), root_rank);
}

Status BroadcastGlobalVariablesHook::Begin(const Scope& scope) {
  broadcast_ = hvd::BroadcastGlobalVariables(scope, root_rank_);
  return scope.status();
}

Status BroadcastGlobalVariablesHook::AfterCreateSession(ClientSession* session, Coordinator*) {
  return session->Run(broadcast_);
}

std::vector<GradAndVar> DistributedOptimizer::ComputeGradients(const Scope& scope, const Output& loss,
                                                               const ComputeGradientsOptions& options) {
  std::vector<GradAndVar> gradients = optimizer_->ComputeGradients(scope, loss, options);
  if (!CheckInitialized(scope, "DistributedOptimizer") || Size() == 1) return gradients;
  const Scope inner = scope.SubScope("distributed");
  for (GradAndVar& pair : gradients) {
    if (pair.gradient.empty()) continue;
    if (pair.gradient.is_slices() && options_.sparse_as_dense) pair.gradient = pair.gradient.ToDense(inner);
    const AllreduceOptions how{
        .name = pair.gradient.is_slices() ? "" : absl::StrCat("gradient_", pair.variable.var_name()),
        .op = options_.op,
        .compression = options_.compression};
    pair.gradient = pair.gradient.is_slices() ? Gradient(Allreduce(inner, pair.gradient.slices(), how))
                                              : Gradient(Allreduce(inner, pair.gradient.dense(), how));
  }
  return gradients;
}

Operation DistributedOptimizer::ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients,
                                               const ApplyGradientsOptions& options) {
  return optimizer_->ApplyGradients(scope, gradients, options);
}

Operation DistributedOptimizer::Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options) {
  const std::vector<GradAndVar> gradients = ComputeGradients(
      scope.WithoutOpName(), loss,
      {.variables = options.variables, .colocate_gradients_with_ops = options.colocate_gradients_with_ops});
  return ApplyGradients(scope, gradients,
                        {.global_step = options.global_step, .run_update_ops = options.run_update_ops});
}

}  // namespace millrace::hvd
