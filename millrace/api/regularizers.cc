#include "millrace/api/regularizers.h"

#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/api/scope_state.h"

namespace millrace {
namespace {

Output CheckedScale(const Scope& s, double scale, const Output& term) {
  if (scale < 0) s.UpdateStatus(InvalidArgument("regularizer ", s.prefix(), ": the scale is ", scale, ", below 0"));
  return term;
}

}  // namespace

namespace regularizers {

Regularizer L1(double scale) {
  return [=](const Scope& scope, const Input& weights) {
    const Scope s = scope.ForComposite("l1_regularizer");
    return CheckedScale(s, scale, api_internal::SumAll(s, Op(s, "Abs", {weights})) * scale);
  };
}

Regularizer L2(double scale) {
  return [=](const Scope& scope, const Input& weights) {
    const Scope s = scope.ForComposite("l2_regularizer");
    return CheckedScale(s, scale, Op(s, "L2Loss", {weights}) * scale);
  };
}

Regularizer L1L2(double l1, double l2) {
  return [=](const Scope& scope, const Input& weights) {
    const Scope s = scope.ForComposite("l1_l2_regularizer");
    return L1(l1)(s, weights) + L2(l2)(s, weights);
  };
}

}  // namespace regularizers

void AddRegularizationLoss(const Output& loss) {
  if (!loss.empty()) api_internal::StateOf(loss.scope()).regularization_losses.push_back(loss.endpoint());
}

}  // namespace millrace
