// When something that is done every so often is due: by steps, by time, or whichever comes first.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "millrace/base/clock.h"

namespace millrace {

// Of the two, those that are set count; with none set nothing is ever due.
struct Every {
  std::optional<int64_t> steps = std::nullopt;
  std::optional<absl::Duration> secs = std::nullopt;
};

class StepTimer {
 public:
  explicit StepTimer(Every every, Clock* clock = Clock::Real()) : every_(every), clock_(clock) {}

  // True the first time, and then when so many steps or so much time have passed since `step` was marked.
  bool IsDue(int64_t step) const {
    if (!every_.steps && !every_.secs) return false;
    if (!last_step_) return true;
    if (step == *last_step_) return false;
    if (every_.steps && step >= *last_step_ + *every_.steps) return true;
    return every_.secs && clock_->Now() >= last_time_ + *every_.secs;
  }

  struct Elapsed {
    absl::Duration time;
    int64_t steps = 0;
  };
  // Notes that it was done; gives what has passed since the last time, nothing for the first.
  std::optional<Elapsed> Mark(int64_t step) {
    const absl::Time now = clock_->Now();
    std::optional<Elapsed> elapsed;
    if (last_step_) elapsed = Elapsed{now - last_time_, step - *last_step_};
    last_step_ = step;
    last_time_ = now;
    return elapsed;
  }
  void Reset() { last_step_.reset(); }
  const std::optional<int64_t>& last_step() const { return last_step_; }

 private:
  Every every_;
  Clock* clock_;
  std::optional<int64_t> last_step_;
  absl::Time last_time_ = absl::InfinitePast();
};

}  // namespace millrace
