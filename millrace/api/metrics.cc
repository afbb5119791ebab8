#include "millrace/api/metrics.h"

#include "millrace/api/reductions.h"

namespace millrace::metrics {
namespace {

Output IsCorrect(const Scope& s, const Input& labels, const Input& logits) {
  const Output predicted = Op(s, "ArgMax", {logits, 1}, {{"output_type", DType::kInt64}});
  return Op(s, "Equal", {predicted, api_internal::Cast(s, labels.In(s, DType::kInt64), DType::kInt64)});
}

}  // namespace

Output Accuracy(const Scope& scope, const Input& labels, const Input& logits) {
  const Scope s = scope.ForComposite("accuracy");
  return api_internal::MeanAll(s, api_internal::Cast(s, IsCorrect(s, labels, logits), DType::kFloat));
}

Output NumCorrect(const Scope& scope, const Input& labels, const Input& logits) {
  const Scope s = scope.ForComposite("num_correct");
  return api_internal::SumAll(s, api_internal::Cast(s, IsCorrect(s, labels, logits), DType::kInt64));
}

}  // namespace millrace::metrics
