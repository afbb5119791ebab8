// Decides when to ask what a job waits for, and when to report it again.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace millrace::launch {

struct HangWatchOptions {
  absl::Duration after = absl::Seconds(10);        // ask after this long without a step
  absl::Duration kill = absl::InfiniteDuration();  // fail the job after hanging for this long
  absl::Duration repeat = absl::Minutes(1);        // show an unchanged report again after this long
};

// Pure logic on the times that it is given. Not thread-safe.
class HangWatch {
 public:
  HangWatch(const HangWatchOptions& options, absl::Time now) : options_(options), moved_(now) {
    OnMove(now, absl::ZeroDuration());
  }

  // Call when a step was finished, or a task started or ended. `longest_step` is the longest step so far: a step that
  // is merely slow is not a hang.
  void OnMove(absl::Time now, absl::Duration longest_step);
  // When to ask the tasks.
  absl::Time ask_at() const { return asking_ ? absl::InfiniteFuture() : ask_at_; }
  void OnAsked() { asking_ = true; }
  // Call with the answer. `cause` is empty if nothing hangs; then the interval until the next question grows. Returns
  // whether to show the report.
  bool OnAnswer(absl::Time now, const std::string& cause);
  // The minimum age of a wait that can explain the missing steps. It is less than `after` because waits begin a moment
  // after the last step.
  absl::Duration wait_limit() const { return 0.8 * options_.after; }
  // Whether a hang has lasted for as long as the user allows.
  bool ShouldKill(absl::Time now) const;
  const std::string& cause() const { return cause_; }
  absl::Time since() const { return moved_; }

 private:
  const HangWatchOptions options_;
  absl::Time moved_;  // the last sign of progress
  absl::Time ask_at_ = absl::InfiniteFuture();
  absl::Duration pause_ = absl::ZeroDuration();  // between questions
  bool asking_ = false;
  std::string cause_;
  std::string shown_;
  absl::Time shown_at_ = absl::InfinitePast();
};

}  // namespace millrace::launch
