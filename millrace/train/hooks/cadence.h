// Decides when a periodic action is due: every N steps, or every so much time.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/status.h"

namespace millrace {

// Not thread-safe.
class Cadence {
 public:
  // At most one interval may be given; if neither is, the action is never due. `what` names the owner in errors.
  static StatusOr<Cadence> Make(const char* what, std::optional<int64_t> every_steps,
                                std::optional<absl::Duration> every, Clock* clock) {
    if (every_steps && every) return InvalidArgument(what, ": give a number of steps or a time, not both");
    if (every_steps && *every_steps < 1)
      return InvalidArgument(what, ": every ", *every_steps, " steps makes no sense");
    if (every && *every < absl::ZeroDuration())
      return InvalidArgument(what, ": every ", absl::FormatDuration(*every), " makes no sense");
    return Cadence(every_steps, every, clock);
  }
  Cadence() = default;

  bool counts_steps() const { return every_steps_.has_value(); }
  // True until the first Done, and then again once the interval has passed since the last Done. `step` is ignored if
  // the interval is a time. If the step has gone back, as after a restore, the action is due.
  bool IsDue(int64_t step) const {
    if (!every_steps_ && !every_) return false;
    if (!done_) return true;
    if (every_steps_) return step < last_step_ || step >= last_step_ + *every_steps_;
    return clock_->Now() >= last_time_ + *every_;
  }
  void Done(int64_t step) {
    done_ = true;
    last_step_ = step;
    last_time_ = clock_ == nullptr ? absl::InfinitePast() : clock_->Now();
  }

 private:
  Cadence(std::optional<int64_t> every_steps, std::optional<absl::Duration> every, Clock* clock)
      : every_steps_(every_steps), every_(every), clock_(clock) {}

  std::optional<int64_t> every_steps_;
  std::optional<absl::Duration> every_;
  Clock* clock_ = nullptr;
  bool done_ = false;
  int64_t last_step_ = 0;
  absl::Time last_time_;
};

}  // namespace millrace
