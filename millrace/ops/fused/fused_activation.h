// Activations that passes fuse into the preceding op, named after their op.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/status.h"

namespace millrace {

enum class Activation { kNone, kRelu, kRelu6, kElu, kLeakyRelu, kTanh, kSigmoid, kGeluApproximate, kGeluExact };

// UNIMPLEMENTED, naming the op, if it cannot be fused.
StatusOr<Activation> ParseActivation(const std::string& name);

// Applies the activation in place, with the same formula as the op. `alpha` is LeakyRelu's.
void Activate(Activation activation, float alpha, float* x, int64_t n);

}  // namespace millrace
