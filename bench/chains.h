// Chains of element-wise ops and reductions over rows, as TensorFlow programs write them.
#pragma once

#include "bench/case.h"

namespace millrace::bench {

// All chains over 1 M and 64 M floats, in rows of 1,024, each with its share of the bandwidth of a copy.
void Chains1M(const Flags& flags);
void Chains64M(const Flags& flags);

}  // namespace millrace::bench
