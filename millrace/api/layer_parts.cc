#include "millrace/api/layer_parts.h"

#include "millrace/api/variable_creation.h"

namespace millrace::api_internal {

int64_t LastDim(const Scope& s, const Output& x, int min_rank) {
  if (!s.ok()) return -1;
  const PartialShape shape = x.shape();
  if (!shape.known_rank() || shape.rank() < min_rank || shape.dim(shape.rank() - 1) < 0) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": the input ", x.name(), " of shape ", shape.ToString(),
                                   " needs at least ", min_rank, " dimensions and a known last one"));
    return -1;
  }
  return shape.dim(shape.rank() - 1);
}

bool CheckPositive(const Scope& s, const char* what, int64_t value) {
  if (value > 0) return true;
  s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": ", what, " is ", value, ", and must be positive"));
  return false;
}

std::string PaddingName(layers::Padding padding) { return padding == layers::Padding::kSame ? "SAME" : "VALID"; }

void Regularize(const Scope& s, const PartitionedVar& weight, const Regularizer& regularizer) {
  if (regularizer == nullptr || weight.reused()) return;
  for (const Var& part : weight.parts()) AddRegularizationLoss(regularizer(s, part));
}

Weight MakeWeight(const Scope& s, absl::string_view name, const Shape& shape, const Initializer& init,
                  const WeightOptions& options) {
  Weight weight;
  weight.variable = PartitionedVar(s, name, shape, init, {.dtype = options.dtype, .trainable = options.trainable});
  weight.value = WholeOf(s, weight.variable);
  Regularize(s, weight.variable, options.regularizer);
  return weight;
}

}  // namespace millrace::api_internal
