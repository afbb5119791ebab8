// Activations that passes fuse to the op before them, by the name of their own op.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/status.h"

namespace millrace {

enum class Activation { kNone, kRelu, kRelu6, kElu, kLeakyRelu, kTanh, kSigmoid, kGeluApproximate, kGeluExact };

// UNIMPLEMENTED names an op that cannot be fused.
StatusOr<Activation> ParseActivation(const std::string& name);

// In place, with the same formulas as the ops of those names. `alpha` is LeakyRelu's.
void Activate(Activation activation, float alpha, float* x, int64_t n);

}  // namespace millrace
