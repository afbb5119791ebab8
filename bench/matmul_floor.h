// The lower bound of a training step: its matrix products and nothing else.
#pragma once

#include <vector>

namespace millrace::bench {

// Seconds that oneDNN takes for the matrix products of one training step of a multi-layer perceptron
// (forward, gradients of the weights, gradients of the hidden layers), with `threads` threads.
double MatMulFloorSeconds(const std::vector<int>& sizes, int batch, int threads, double seconds);

}  // namespace millrace::bench
