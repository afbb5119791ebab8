#include "millrace/strategy/replica_assignments.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"

namespace millrace {

std::vector<Output> Counted(const Scope& scope, const std::vector<Output>& values, const std::vector<Output>& weights,
                            bool mean) {
  if (weights.empty()) return values;
  if (weights.size() != values.size()) {
    scope.UpdateStatus(InvalidArgument("there are ", values.size(), " values and ", weights.size(), " weights"));
    return {};
  }
  std::vector<Output> counted;
  for (size_t i = 0; i < values.size(); ++i) {
    const Output& value = values[i];
    const Output zeros = Op(scope, "ZerosLike", {value});
    // A stand-in may give anything, even what is not a number.
    Output part = Op(scope, "SelectV2", {Op(scope, "Greater", {weights[i], 0.0f}), value, zeros});
    if (mean && scope.ok() && IsFloating(value.dtype())) {
      const Output factor =
          value.dtype() == DType::kFloat ? weights[i] : Op(scope, "Cast", {weights[i]}, {{"DstT", value.dtype()}});
      part = Op(scope, "Mul", {part, factor});
    }
    counted.push_back(part);
  }
  return counted;
}

Output MeanOf(const Scope& scope, const Output& sum, int n) {
  if (sum.empty()) return sum;
  if (!IsFloating(sum.dtype())) {
    scope.UpdateStatus(InvalidArgument("the mean of ", sum.name(), " over replicas: it is ", DTypeName(sum.dtype()),
                                       ", and must be a floating-point number"));
    return Output(scope, Endpoint{});
  }
  return n == 1 ? sum : Op(scope, "RealDiv", {sum, static_cast<double>(n)});
}

void MergeAssignments(const Scope& scope, const ReplicaLayout& layout,
                      const api_internal::ReplicaAssignments& assignments,
                      const api_internal::VariableAggregations& aggregations) {
  const auto& replicas = assignments.replicas();
  if (replicas.empty() || !scope.ok()) return;
  const auto& first = replicas[0];
  if (const Status same = assignments.CheckSame(layout.local().first); !same.ok()) return scope.UpdateStatus(same);

  // One exchange for all sums of a type.
  const Scope s = scope.SubScope("replica_updates");
  std::map<DType, std::vector<size_t>> sums;
  std::vector<Output> values(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    const auto found = aggregations.find(first[i].variable.handle().node());
    switch (found == aggregations.end() ? VariableAggregation::kNone : found->second) {
      case VariableAggregation::kNone:
        scope.UpdateStatus(
            InvalidArgument("variable ", first[i].variable.var_name(),
                            " is assigned by replicas and has no aggregation (VarOptions::aggregation)"));
        return;
      case VariableAggregation::kFirstReplica:
        values[i] = first[i].value;
        if (layout.num_workers > 1) {
          const std::vector<Output> received =
              BroadcastTensors(s, absl::StrCat("value of ", first[i].variable.var_name()), {first[i].value});
          if (!s.ok()) return;
          values[i] = received[0];
        }
        break;
      case VariableAggregation::kSum:
      case VariableAggregation::kMean:
        sums[first[i].value.dtype()].push_back(i);
        break;
    }
  }
  for (const auto& [dtype, which] : sums) {
    ReplicaValues all{.key = absl::StrCat("updates of ", first[which[0]].variable.var_name(), " and ", which.size() - 1,
                                          " more variables")};
    for (const size_t i : which) {
      const bool mean = aggregations.at(first[i].variable.handle().node()) == VariableAggregation::kMean;
      std::vector<Output> of_one, weights;
      for (const auto& replica : replicas) {
        of_one.push_back(replica[i].value);
        if (!replica[i].weight.empty()) weights.push_back(replica[i].weight);
      }
      all.values.push_back(Counted(s, of_one, weights, mean));
    }
    const std::vector<Output> totals = SumOverReplicas(s, layout, all);
    if (!s.ok()) return;
    for (size_t n = 0; n < which.size(); ++n) {
      const Node* const handle = first[which[n]].variable.handle().node();
      const bool mean = aggregations.at(handle) == VariableAggregation::kMean;
      values[which[n]] = mean ? MeanOf(s, totals[n], layout.num_replicas()) : totals[n];
    }
  }
  for (size_t i = 0; i < first.size() && s.ok(); ++i) {
    const Var& variable = first[i].variable;
    const Operation assign = AddOp(s.ColocateWith(variable.handle()), first[i].op.c_str(),
                                   {variable.handle(), values[i]}, {{"dtype", values[i].dtype()}});
    if (assign.empty()) return;
    for (const auto& replica : replicas) {
      if (!replica[i].done.empty()) s.graph()->AddControlInput(replica[i].done.node(), assign.node());
    }
  }
}

}  // namespace millrace
