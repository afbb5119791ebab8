// Keeping values and gradients within bounds.
#pragma once

#include <utility>
#include <vector>

#include "millrace/api/gradients.h"

namespace millrace {

Output ClipByValue(const Scope& scope, const Input& x, const Input& low, const Input& high);

// x, scaled down where needed so that its Euclidean norm is at most `max_norm`.
Output ClipByNorm(const Scope& scope, const Input& x, const Input& max_norm);

// The Euclidean norm of all gradients together; empty ones do not count.
Output GlobalNorm(const Scope& scope, const std::vector<Gradient>& gradients);

// All gradients, scaled down by one factor where needed so that GlobalNorm is at most `max_norm`;
// and what it was before. Slices stay slices, empty ones empty. A norm that is not finite makes all
// of them NaN instead of hiding it.
std::pair<std::vector<Gradient>, Output> ClipByGlobalNorm(const Scope& scope,
                                                          const std::vector<Gradient>& gradients,
                                                          double max_norm);

}  // namespace millrace
