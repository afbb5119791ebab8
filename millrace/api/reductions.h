// Sums and means over all dimensions. Internal to the front end.
#pragma once

#include "millrace/api/op_call.h"

namespace millrace::api_internal {

// The axes 0, 1, ... of all dimensions of x.
inline Output AllAxes(const Scope& scope, const Output& x) {
  if (!x.shape().known_rank()) return Op(scope, "Range", {0, Op(scope, "Rank", {x}), 1});
  std::vector<int32_t> axes;
  for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  return Input(axes).In(scope.WithOpName("axes"));
}
inline Output SumAll(const Scope& scope, const Output& x) { return Op(scope, "Sum", {x, AllAxes(scope, x)}); }
inline Output MeanAll(const Scope& scope, const Output& x) { return Op(scope, "Mean", {x, AllAxes(scope, x)}); }

inline Output Cast(const Scope& scope, const Output& x, DType to) {
  return x.empty() || x.dtype() == to ? x : Op(scope, "Cast", {x}, {{"DstT", to}});
}

}  // namespace millrace::api_internal
