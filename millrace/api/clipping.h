// Clipping of values and gradients.
#pragma once

#include <utility>
#include <vector>

#include "millrace/api/gradients.h"

namespace millrace {

Output ClipByValue(const Scope& scope, const Input& x, const Input& low, const Input& high);

// x, scaled down if necessary so that its Euclidean norm is at most `max_norm`.
Output ClipByNorm(const Scope& scope, const Input& x, const Input& max_norm);

// The Euclidean norm of all gradients together, ignoring empty ones.
Output GlobalNorm(const Scope& scope, const std::vector<Gradient>& gradients);

// Returns all gradients, scaled down by a common factor if necessary so that their GlobalNorm is at most `max_norm`,
// and their norm before clipping. Slices stay slices, and empty gradients stay empty. A non-finite norm makes all
// gradients NaN, so that it is not hidden.
std::pair<std::vector<Gradient>, Output> ClipByGlobalNorm(const Scope& scope, const std::vector<Gradient>& gradients,
                                                          double max_norm);

}  // namespace millrace
