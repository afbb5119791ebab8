// Timing and memory, measured as bench/peers/common.py measures the peers'.
#pragma once

#include "absl/functional/function_ref.h"

namespace millrace::bench {

// The median time of one call in seconds, over about `seconds`.
double MedianSeconds(double seconds, absl::FunctionRef<void()> call);

struct RateOptions {
  int warm = 50;   // calls before, at least
  int chunk = 10;  // calls between two looks at the clock
};
// Calls per second over about `seconds`, after warming up.
double Rate(double seconds, absl::FunctionRef<void()> call, const RateOptions& options = {});

// What the process holds now, and the most it has held, in MB.
double ResidentMb();
double PeakMb();

}  // namespace millrace::bench
