// Regularizers: terms of the loss that keep weights small. A layer adds them to the graph's regularization losses
// (losses::GetTotalLoss, losses::RegularizationLoss).
//
//   layers::Dense(scope, x, 256, {.kernel_regularizer = regularizers::L1(0.01)});
#pragma once

#include <functional>

#include "millrace/api/input.h"

namespace millrace {

// A scalar for the given weights.
using Regularizer = std::function<Output(const Scope& scope, const Input& weights)>;

namespace regularizers {

// scale * sum(|w|)
Regularizer L1(double scale);
// scale * sum(w^2) / 2
Regularizer L2(double scale);
// The sum of both.
Regularizer L1L2(double l1, double l2);

}  // namespace regularizers

// Adds a scalar to the regularization losses of its graph.
void AddRegularizationLoss(const Output& loss);

}  // namespace millrace
