// Evaluating the integer tensors from which shapes are made, before anything runs.
#pragma once

#include <limits>
#include <vector>

#include "millrace/graph/shape_inference.h"

namespace millrace {

// The elements of an integer tensor as far as the graph tells: through Const, Shape, Size, Rank,
// Pack, ConcatV2, slices, gathers, casts, reshapes and simple arithmetic. Unknown elements are
// kUnknownInt. False when not even the number of elements is known.
bool EvaluateInts(Endpoint e, const ShapeContext::ConstantLookup& constants,
                  std::vector<int64_t>* values);

inline constexpr int64_t kUnknownInt = std::numeric_limits<int64_t>::min();

}  // namespace millrace
