// What the ops of connectionist temporal classification take: logits by time, sequence and class, and lengths.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct CtcInput {
  int64_t steps = 0, batch = 0, classes = 0;
  std::vector<int64_t> lengths;  // by sequence

  static StatusOr<CtcInput> Read(const Tensor& inputs, const Tensor& lengths) {
    if (inputs.rank() != 3) return InvalidArgument("inputs is not a 3-Tensor");
    if (lengths.rank() != 1) return InvalidArgument("sequence_length is not a vector");
    CtcInput in{.steps = inputs.dim(0), .batch = inputs.dim(1), .classes = inputs.dim(2), .lengths = {}};
    if (in.steps == 0) return InvalidArgument("max_time is 0");
    if (in.batch == 0) return InvalidArgument("batch_size must not be 0");
    if (in.classes == 0) return InvalidArgument("num_classes must not be 0");
    if (lengths.dim(0) != in.batch) {
      return InvalidArgument("len(sequence_length) != batch_size.  len(sequence_length):  ", lengths.dim(0),
                             " batch_size: ", in.batch);
    }
    for (int64_t b = 0; b < in.batch; ++b) {
      const int64_t length = lengths.data<int32_t>()[b];
      if (length < 0 || length > in.steps) {
        return InvalidArgument("sequence_length(", b, ") must be between 0 and ", in.steps, ", but is ", length);
      }
      in.lengths.push_back(length);
    }
    return in;
  }

  // Where the classes of a step of a sequence begin.
  int64_t Row(int64_t t, int64_t b) const { return (t * batch + b) * classes; }
};

// The logarithm of a probability of zero.
inline constexpr double kLogZero = -std::numeric_limits<double>::infinity();

// log(exp(a) + exp(b)).
inline double LogSumExp(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kLogZero ? a : a + std::log1p(std::exp(b - a));
}

}  // namespace millrace
