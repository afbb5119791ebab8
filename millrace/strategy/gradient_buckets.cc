#include "millrace/strategy/gradient_buckets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/strategy/replica_assignments.h"

namespace millrace {
namespace {

// A variable and its gradient in each local replica.
struct ReplicaGradients {
  Var variable;
  std::vector<Output> values;

  int64_t bytes() const {
    const PartialShape shape = variable.shape();
    return shape.IsFullyDefined() ? shape.AsShape().num_elements() * static_cast<int64_t>(SizeOf(variable.dtype())) : 0;
  }
};

StatusOr<std::vector<ReplicaGradients>> GradientsOfReplicas(const PerReplica& losses,
                                                            const std::vector<Var>& variables) {
  std::vector<ReplicaGradients> all;
  for (const Var& variable : variables) all.push_back({variable, {}});
  for (size_t r = 0; r < losses.values.size(); ++r) {
    const Output& loss = losses.values[r];
    if (loss.empty()) return InvalidArgument("Minimize: a loss is empty");
    if (loss.shape().known_rank() && loss.shape().rank() != 0) {
      return InvalidArgument("Minimize: the loss ", loss.name(), " is not a scalar but ", loss.shape().ToString());
    }
    const Scope& s = losses.scopes[r];
    std::vector<Output> counts;
    if (!losses.weights.empty()) {
      const Output& weight = losses.weights[r];
      counts = {loss.dtype() == DType::kFloat ? weight : Op(s, "Cast", {weight}, {{"DstT", loss.dtype()}})};
    }
    const std::vector<Gradient> gradients =
        Gradients(s, {loss}, std::vector<Output>(variables.begin(), variables.end()), {.grad_ys = counts});
    MR_RETURN_IF_ERROR(s.status());
    for (size_t i = 0; i < variables.size(); ++i) {
      const bool has = !gradients[i].empty();
      if (r > 0 && has != (all[i].values.size() == r)) {
        return InvalidArgument("Minimize: the loss of one replica depends on variable ", variables[i].var_name(),
                               " and that of another does not");
      }
      if (has) all[i].values.push_back(gradients[i].ToDense(s));
    }
  }
  std::erase_if(all, [](const ReplicaGradients& g) { return g.values.empty(); });
  // Nodes of the backward pass are added in its order.
  std::stable_sort(all.begin(), all.end(), [](const ReplicaGradients& a, const ReplicaGradients& b) {
    return a.values[0].node()->id() < b.values[0].node()->id();
  });
  return all;
}

// The first gradient after each bucket.
std::vector<size_t> BucketEnds(const std::vector<ReplicaGradients>& gradients, const BucketOptions& options) {
  int64_t total = 0;
  for (const ReplicaGradients& g : gradients) total += g.bytes();
  const int64_t size = options.num_packs > 0 ? std::max<int64_t>(1, (total + options.num_packs - 1) / options.num_packs)
                                             : options.bucket_bytes;
  std::vector<size_t> ends;
  int64_t bytes = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const bool other_type = i > 0 && gradients[i].variable.dtype() != gradients[i - 1].variable.dtype();
    if (i > 0 && (other_type || bytes >= size)) {
      ends.push_back(i);
      bytes = 0;
    }
    bytes += gradients[i].bytes();
  }
  ends.push_back(gradients.size());
  return ends;
}

}  // namespace

std::vector<GradAndVar> MeanGradients(const Scope& scope, const ReplicaLayout& layout, const PerReplica& losses,
                                      std::vector<Var> variables, const BucketOptions& options) {
  if (variables.empty()) variables = TrainableVariables(scope);
  if (variables.empty()) scope.UpdateStatus(InvalidArgument("Minimize: the graph has no variables to optimize"));
  if (!scope.ok()) return {};
  StatusOr<std::vector<ReplicaGradients>> gradients = GradientsOfReplicas(losses, variables);
  if (gradients.ok() && gradients->empty()) {
    gradients = InvalidArgument("Minimize: the loss does not depend on any variable");
  }
  if (!gradients.ok()) {
    scope.UpdateStatus(gradients.status());
    return {};
  }
  const Scope s = scope.SubScope("mean_gradients");
  std::vector<GradAndVar> result;
  size_t begin = 0;
  for (const size_t end : BucketEnds(*gradients, options)) {
    ReplicaValues bucket{.key = absl::StrCat("gradients of ", (*gradients)[begin].variable.var_name(), " to ",
                                             (*gradients)[end - 1].variable.var_name(), ", ", end - begin, " tensors")};
    for (size_t i = begin; i < end; ++i) bucket.values.push_back((*gradients)[i].values);
    const std::vector<Output> sums = SumOverReplicas(s, layout, bucket);
    if (!s.ok()) return {};
    for (size_t i = begin; i < end; ++i) {
      result.push_back({MeanOf(s, sums[i - begin], layout.num_replicas()), (*gradients)[i].variable});
    }
    begin = end;
  }
  return result;
}

}  // namespace millrace
