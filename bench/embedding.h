// Gathers and updates rows of a large table.
#pragma once

#include "bench/case.h"

namespace millrace::bench {

void Embedding(const Flags& flags);

}  // namespace millrace::bench
