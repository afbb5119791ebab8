// When to ask what a job waits for, and when to say it again.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace millrace::launch {

struct HangWatchOptions {
  absl::Duration after = absl::Seconds(10);          // without a step
  absl::Duration kill = absl::InfiniteDuration();    // hanging for this long fails the job
  absl::Duration repeat = absl::Minutes(1);          // the same report is shown again
};

// Pure, on times that it is given. One thread.
class HangWatch {
 public:
  HangWatch(const HangWatchOptions& options, absl::Time now) : options_(options), moved_(now) { OnMove(now, absl::ZeroDuration()); }

  // A step was finished, or a task started or ended. `longest_step`: what a step took at most so far; slow steps are no hang.
  void OnMove(absl::Time now, absl::Duration longest_step);
  // When the tasks are to be asked.
  absl::Time ask_at() const { return asking_ ? absl::InfiniteFuture() : ask_at_; }
  void OnAsked() { asking_ = true; }
  // The answer: `cause` is empty when nothing hangs, and then the next question comes later each time. Returns whether to show it.
  bool OnAnswer(absl::Time now, const std::string& cause);
  // How long somebody must have waited to explain that no step comes: who waits does so a moment after the last step.
  absl::Duration wait_limit() const { return 0.8 * options_.after; }
  // A hang has lasted for as long as the user allows.
  bool ShouldKill(absl::Time now) const;
  const std::string& cause() const { return cause_; }
  absl::Time since() const { return moved_; }

 private:
  const HangWatchOptions options_;
  absl::Time moved_;  // the last sign of work
  absl::Time ask_at_ = absl::InfiniteFuture();
  absl::Duration pause_ = absl::ZeroDuration();  // between questions
  bool asking_ = false;
  std::string cause_;
  std::string shown_;
  absl::Time shown_at_ = absl::InfinitePast();
};

}  // namespace millrace::launch
