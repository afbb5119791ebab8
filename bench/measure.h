// Measures time and memory in the same way as bench/peers/common.py does for the peers.
#pragma once

#include "absl/functional/function_ref.h"

namespace millrace::bench {

// The median time of one call in seconds, over about `seconds`.
double MedianSeconds(double seconds, absl::FunctionRef<void()> call);

struct RateOptions {
  int warm = 50;   // the minimum number of warm-up calls
  int chunk = 10;  // calls between two readings of the clock
};
// Calls per second over about `seconds`, after warming up.
double Rate(double seconds, absl::FunctionRef<void()> call, const RateOptions& options = {});

// The current and the peak memory of the process, in MB.
double ResidentMb();
double PeakMb();

}  // namespace millrace::bench
