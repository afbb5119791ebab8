// Images per second of a training.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "millrace/base/clock.h"

// Leaves out the time between Pause and Resume, and the first step, which compiles the graph.
class Speed {
 public:
  explicit Speed(int64_t batch_size) : batch_size_(batch_size) {}

  // Called after each step, or after some that were made together.
  void Step(int64_t steps = 1) {
    if (started_) {
      steps_ += steps;
    } else {
      started_ = true;
      Resume();
    }
  }
  void Pause() {
    const absl::Time now = millrace::Clock::Real()->Now();
    seconds_ += absl::ToDoubleSeconds(now - mark_);
    mark_ = now;
  }
  void Resume() { mark_ = millrace::Clock::Real()->Now(); }

  // Since the last call.
  double Current() {
    Pause();
    const double rate = Rate(steps_ - shown_steps_, seconds_ - shown_seconds_);
    shown_steps_ = steps_;
    shown_seconds_ = seconds_;
    return rate;
  }
  double Average() const { return Rate(steps_, seconds_); }

 private:
  double Rate(int64_t steps, double seconds) const {
    return seconds > 0 ? static_cast<double>(steps * batch_size_) / seconds : 0;
  }

  const int64_t batch_size_;
  bool started_ = false;
  int64_t steps_ = 0, shown_steps_ = 0;
  double seconds_ = 0, shown_seconds_ = 0;
  absl::Time mark_;
};
