// How far another task's clock is from ours.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/status.h"
#include "millrace/net/transport.h"

namespace millrace {

struct ClockReading {
  absl::Duration offset = absl::ZeroDuration();  // the task's clock less ours
  absl::Duration error = absl::ZeroDuration();   // the offset is this far off at most
};

struct MeasureClockOptions {
  int exchanges = 8;
  absl::Duration timeout = absl::Seconds(1);  // of each
  Clock* clock = Clock::Real();               // ours
};

// Asks the task at `address` for its time again and again, one question after the other. It read its clock between our question and its answer, so each
// exchange bounds the offset; what all of them leave is the reading. The error of the first exchange that failed when none went well; UNIMPLEMENTED for
// a task without a status service, as TensorFlow's. Blocks.
StatusOr<ClockReading> MeasureClock(net::Transport* transport, const std::string& address, const MeasureClockOptions& options = {});

}  // namespace millrace
