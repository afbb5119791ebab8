// Shows the states of a job's tasks to the user.
#pragma once

#include "absl/time/time.h"
#include "millrace/launch/job_state.h"

namespace millrace::launch {

// On a terminal, draws status lines below the output; elsewhere, prints one line for each change. Single-threaded;
// `job` must outlive it.
class StatusDisplay {
 public:
  explicit StatusDisplay(JobState* job) : job_(job) {}

  // Shows what has changed since the last call.
  void TellStates();
  // Call it when the size of the terminal may have changed.
  void MeasureTerminal();
  // Draws the status lines, if there are any, when they are due or if `now`.
  void Draw(bool now);
  absl::Time next_draw() const { return next_draw_; }

 private:
  JobState* const job_;
  int rows_ = 24, columns_ = 80;
  absl::Time next_draw_ = absl::InfiniteFuture();
};

}  // namespace millrace::launch
