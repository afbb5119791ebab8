// Rows of a large table: gathered, and updated by gradients.
#pragma once

#include "bench/case.h"

namespace millrace::bench {

void Embedding(const Flags& flags);

}  // namespace millrace::bench
