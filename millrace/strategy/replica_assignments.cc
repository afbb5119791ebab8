#include "millrace/strategy/replica_assignments.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"

namespace millrace {

Output MeanOf(const Scope& scope, const Output& sum, int n) {
  if (sum.empty()) return sum;
  if (!IsFloating(sum.dtype())) {
    scope.UpdateStatus(InvalidArgument("the mean of ", sum.name(), " over replicas: it is ", DTypeName(sum.dtype()),
                                       ", and must be a floating-point number"));
    return Output(scope, Endpoint{});
  }
  return n == 1 ? sum : Op(scope, "RealDiv", {sum, static_cast<double>(n)});
}

Operation ReplicaAssignments::Add(const Scope& scope, const Var& variable, const char* op, const Output& value) {
  if (merged_) {
    scope.UpdateStatus(InvalidArgument("variable ", variable.var_name(),
                                       " is assigned in the scope of a replica after the model function has ended"));
    return Operation(scope, nullptr);
  }
  const Operation done = AddOp(scope, "NoOp", {});
  replicas_.back().push_back({variable, op, value, done});
  return done;
}

void ReplicaAssignments::Merge(const Scope& scope, const ReplicaLayout& layout,
                               const VariableAggregations& aggregations) {
  merged_ = true;
  if (replicas_.empty() || !scope.ok()) return;
  const std::vector<Assignment>& first = replicas_[0];
  const int begin = layout.local().first;
  for (size_t r = 1; r < replicas_.size(); ++r) {
    bool same = replicas_[r].size() == first.size();
    for (size_t i = 0; same && i < first.size(); ++i) {
      same = replicas_[r][i].variable.handle().node() == first[i].variable.handle().node() &&
             replicas_[r][i].op == first[i].op;
    }
    if (same) continue;
    scope.UpdateStatus(InvalidArgument(
        "replicas ", begin, " and ", begin + static_cast<int>(r), " do not assign the same variables: ", first.size(),
        " and ", replicas_[r].size(), " assignments",
        first.empty() ? "" : absl::StrCat(", the first of ", first[0].variable.var_name())));
    return;
  }

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
      std::vector<Output>& of_one = all.values.emplace_back();
      for (const std::vector<Assignment>& replica : replicas_) of_one.push_back(replica[i].value);
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
    for (const std::vector<Assignment>& replica : replicas_) {
      if (!replica[i].done.empty()) s.graph()->AddControlInput(replica[i].done.node(), assign.node());
    }
  }
}

}  // namespace millrace
