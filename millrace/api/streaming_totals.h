// How streaming metrics keep their sums. Internal to the front end.
#pragma once

#include <utility>
#include <vector>

#include "millrace/api/streaming_metrics.h"

namespace millrace::streaming {

using ResultFn = std::function<Output(const Scope& scope, const std::vector<Output>& totals)>;

// A sum over batches: its name, its shape, and what a batch adds to it.
struct Total {
  const char* name;
  Shape shape;
  Output of_batch;
};
Metric Accumulate(const Scope& s, const std::vector<Total>& totals, ResultFn result);

// `values` as doubles, multiplied by the weights, and the weights themselves broadcast to `values`.
struct Weighted {
  Output values;
  Output weights;
};
Weighted Weigh(const Scope& s, const Output& values, const Input& weights);

Output ToDouble(const Scope& s, const Output& x);
Output ToFloat(const Scope& s, const Output& x);
// a / b, 0 where b is 0.
Output Ratio(const Scope& s, const Output& a, const Output& b);
// [n] of any shape; the same element order in labels, predictions and weights.
Output Flat(const Scope& s, const Output& x);

// The mean of `values`.
Metric MeanOfValues(const Scope& s, const Output& values, const Input& weights);

}  // namespace millrace::streaming
