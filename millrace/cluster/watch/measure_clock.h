// Measures the offset between another task's clock and ours.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/status.h"
#include "millrace/net/transport.h"

namespace millrace {

struct ClockReading {
  absl::Duration offset = absl::ZeroDuration();  // the task's clock minus ours
  absl::Duration error = absl::ZeroDuration();   // the maximum error of the offset
};

struct MeasureClockOptions {
  int exchanges = 8;
  absl::Duration timeout = absl::Seconds(1);  // of each
  Clock* clock = Clock::Real();               // ours
};

// Asks the task at `address` for its time several times in a row. It reads its clock between our request and its
// answer, so each exchange bounds the offset; the result is the intersection of the bounds. If no exchange succeeds,
// returns the first error; UNIMPLEMENTED for a task without a status service, such as TensorFlow's. Blocks.
StatusOr<ClockReading> MeasureClock(net::Transport* transport, const std::string& address,
                                    const MeasureClockOptions& options = {});

}  // namespace millrace
