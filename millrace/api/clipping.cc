#include "millrace/api/clipping.h"

#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"

namespace millrace {
namespace {

const Output& ValuesOf(const Gradient& gradient) {
  return gradient.is_slices() ? gradient.slices().values : gradient.dense();
}

}  // namespace

Output ClipByValue(const Scope& scope, const Input& x, const Input& low, const Input& high) {
  const Scope s = scope.ForComposite("clip_by_value");
  return Op(s, "Maximum", {Op(s, "Minimum", {x, high}), low});
}

Output ClipByNorm(const Scope& scope, const Input& x, const Input& max_norm) {
  const Scope s = scope.ForComposite("clip_by_norm");
  const Output in = x.In(s);
  const Output norm = Op(s, "Sqrt", {api_internal::SumAll(s, Op(s, "Square", {in}))});
  const Output limit = max_norm.In(s, in.dtype(), "max_norm");
  return Op(s, "RealDiv", {Op(s, "Mul", {in, limit}), Op(s, "Maximum", {norm, limit})});
}

Output GlobalNorm(const Scope& scope, const std::vector<Gradient>& gradients) {
  const Scope s = scope.ForComposite("global_norm");
  std::vector<Output> halves;  // L2Loss is half of the sum of squares
  for (const Gradient& gradient : gradients) {
    if (!gradient.empty()) halves.push_back(Op(s, "L2Loss", {ValuesOf(gradient)}));
  }
  if (halves.empty()) {
    s.UpdateStatus(InvalidArgument("there is no gradient to take the norm of in scope '", s.prefix(), "'"));
    return Output(s, Endpoint{});
  }
  return Op(s, "Sqrt", {Op(s, "AddN", {InputList(halves)}) * 2});
}

std::pair<std::vector<Gradient>, Output> ClipByGlobalNorm(const Scope& scope, const std::vector<Gradient>& gradients,
                                                          double max_norm) {
  const Scope s = scope.ForComposite("clip_by_global_norm");
  if (!(max_norm > 0)) {
    s.UpdateStatus(InvalidArgument("max_norm in scope '", s.prefix(), "' is ", max_norm, ", and must be positive"));
  }
  const Output norm = GlobalNorm(s, gradients);
  // An infinite norm becomes NaN here (infinity minus infinity), so that it is noticed.
  const Output scale = Op(s, "Minimum", {1 / norm, 1 / max_norm}) * max_norm + (norm - norm);
  std::vector<Gradient> clipped;
  for (const Gradient& gradient : gradients) {
    if (gradient.empty()) {
      clipped.emplace_back();
      continue;
    }
    const Output values = Op(s, "Mul", {ValuesOf(gradient), scale});
    if (gradient.is_slices()) {
      clipped.push_back(IndexedSlices{values, gradient.slices().indices, gradient.slices().dense_shape});
    } else {
      clipped.push_back(values);
    }
  }
  return {std::move(clipped), norm};
}

}  // namespace millrace
