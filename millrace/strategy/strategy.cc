#include "millrace/strategy/strategy.h"

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"

namespace millrace {

ReplicaInputs Strategy::MakeInputs(const Scope& scope, int64_t batch_size, const std::vector<InputSpec>& specs,
                                   bool drop_remainder) {
  ReplicaInputs inputs;
  if (batch_size < 1 || (drop_remainder && batch_size % num_replicas() != 0)) {
    scope.UpdateStatus(InvalidArgument("a global batch of ", batch_size, " examples cannot be divided equally into ",
                                       num_replicas(), " replicas of ", name()));
    return inputs;
  }
  const Scope s = scope.ForComposite("inputs");
  PerReplica counts;
  for (int r = 0; r < local_replicas(); ++r) {
    std::vector<Output>& own = inputs.replicas.emplace_back();
    const Scope named = s.WithOpName(absl::StrCat("replica_", first_replica() + r));
    for (const InputSpec& spec : specs) {
      PartialShape shape = spec.shape;
      if (shape.known_rank()) {
        std::vector<int64_t> dims = {drop_remainder ? batch_size / num_replicas() : PartialShape::kUnknown};
        for (int d = 0; d < shape.rank(); ++d) dims.push_back(shape.dim(d));
        shape = PartialShape(dims);
      }
      own.push_back(Op(named, "Placeholder", {}, {{"dtype", spec.dtype}, {"shape", shape}}));
      inputs.feeds.push_back(own.back());
    }
    if (drop_remainder) continue;
    counts.values.push_back(
        Op(named, "Placeholder", {}, {{"dtype", DType::kInt64}, {"shape", PartialShape(std::vector<int64_t>{})}}));
    inputs.feeds.push_back(counts.values.back());
  }
  if (drop_remainder || !s.ok()) return inputs;
  const auto as_double = [&](const Output& n) { return Op(s, "Cast", {n}, {{"DstT", DType::kDouble}}); };
  // 1 for whole batches, exactly.
  const Output total = as_double(Op(s, "Maximum", {Reduce(s, ReplicaReduction::kSum, counts), 1}));
  for (const Output& count : counts.values) {
    const double replicas = is_synchronous() ? num_replicas() : 1;
    inputs.weights.push_back(Op(s.WithOpName("weight"), "Cast",
                                {Op(s, "RealDiv", {Op(s, "Mul", {as_double(count), replicas}), total})},
                                {{"DstT", DType::kFloat}}));
  }
  return inputs;
}

Output Strategy::ReadVariable(const Scope& scope, const Var& variable) { return variable.Read(scope); }

std::vector<PerReplica> Strategy::Run(const Scope& scope, const ReplicaInputs& inputs, const ReplicaListFn& fn) {
  std::vector<PerReplica> results;
  if (!scope.ok()) return results;
  if (inputs.replicas.size() != static_cast<size_t>(local_replicas())) {
    scope.UpdateStatus(InvalidArgument("Run: there are inputs for ", inputs.replicas.size(), " replicas, but ",
                                       local_replicas(), " on this worker"));
    return results;
  }
  auto& summaries = api_internal::StateOf(scope).summaries;
  size_t kept = 0;
  for (int r = 0; r < local_replicas(); ++r) {
    const Scope replica = ReplicaScope(scope, r, inputs.weights.empty() ? Output() : inputs.weights[r]);
    const std::vector<Output> values = fn(replica, inputs.replicas[r]);
    if (!scope.ok()) return {};
    if (r == 0) {
      results.resize(values.size());
      kept = summaries.size();
    } else {
      summaries.resize(kept);
    }
    if (values.size() != results.size()) {
      scope.UpdateStatus(InvalidArgument("Run: the model function returned ", values.size(), " tensors for replica ",
                                         first_replica() + r, " and ", results.size(), " for replica ",
                                         first_replica()));
      return {};
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].empty()) {
        scope.UpdateStatus(InvalidArgument("Run: result ", i, " of the model function is empty"));
        return {};
      }
      results[i].values.push_back(values[i]);
      results[i].scopes.push_back(replica);
      if (!inputs.weights.empty()) results[i].weights.push_back(inputs.weights[r]);
    }
  }
  EndReplicas(scope);
  return results;
}

PerReplica Strategy::Run(const Scope& scope, const ReplicaInputs& inputs, const ReplicaFn& fn) {
  const ReplicaListFn as_list = [&fn](const Scope& replica, const std::vector<Output>& in) {
    return std::vector<Output>{fn(replica, in)};
  };
  std::vector<PerReplica> results = Run(scope, inputs, as_list);
  return results.empty() ? PerReplica() : std::move(results[0]);
}

}  // namespace millrace
