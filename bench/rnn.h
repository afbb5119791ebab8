// A recurrent net as a loop of the graph.
#pragma once

#include "millrace/millrace.h"

namespace millrace::bench {

// The sizes that every side of the rnn case uses.
inline constexpr int kRnnSteps = 100, kRnnHidden = 128, kRnnBatch = 16;

// One training step: 100 iterations of h = tanh([x_t, h] W + b), the mean square of the last h, SGD on W and b.
struct Rnn {
  Output loss;
  Operation train;
};
Rnn BuildRnn(const Scope& scope);

}  // namespace millrace::bench
