// When something that is done now and then is due: every so many steps, or every so long.
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
  // One of the two; neither: never. `what` names the owner in errors.
  static StatusOr<Cadence> Make(const char* what, std::optional<int64_t> every_steps, std::optional<absl::Duration> every, Clock* clock) {
    if (every_steps && every) return InvalidArgument(what, ": give a number of steps or a time, not both");
    if (every_steps && *every_steps < 1) return InvalidArgument(what, ": every ", *every_steps, " steps makes no sense");
    if (every && *every < absl::ZeroDuration()) return InvalidArgument(what, ": every ", absl::FormatDuration(*every), " makes no sense");
    return Cadence(every_steps, every, clock);
  }
  Cadence() = default;

  bool counts_steps() const { return every_steps_.has_value(); }
  // True for the first time, and then when enough has passed since Done. `step` matters only when steps are counted. A step that goes back, as after
  // a restore, counts anew.
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
