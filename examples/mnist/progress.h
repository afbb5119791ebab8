// Shows the progress of a long run.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/clock.h"

// On a terminal, one line that is redrawn in place at most ten times a second; in a pipe, a plain line every
// `plain_every` steps.
class Progress {
 public:
  Progress(int64_t total, int64_t plain_every)
      : total_(total), plain_every_(plain_every), start_(millrace::Clock::Real()->Now()) {}

  // Whether Show would print something for this step, so that its values need not be computed otherwise.
  bool IsDue(int64_t step) const {
    if (step == total_) return true;
    if (!is_terminal_) return step % plain_every_ == 0;
    return millrace::Clock::Real()->Now() - shown_ >= absl::Milliseconds(100);
  }

  void Show(int64_t step, float loss, float accuracy) {
    shown_ = millrace::Clock::Real()->Now();
    const double seconds = absl::ToDoubleSeconds(shown_ - start_);
    std::printf("%sstep %lld/%lld  loss %.4f  accuracy %5.1f %%  %.0f steps/s%s", is_terminal_ ? "\r" : "",
                static_cast<long long>(step), static_cast<long long>(total_), loss, 100 * accuracy,
                seconds > 0 ? static_cast<double>(step) / seconds : 0.0, is_terminal_ ? "\033[K" : "\n");
    if (is_terminal_ && step == total_) std::printf("\n");
    std::fflush(stdout);
  }

  double seconds() const { return absl::ToDoubleSeconds(millrace::Clock::Real()->Now() - start_); }

 private:
  const int64_t total_;
  const int64_t plain_every_;
  const bool is_terminal_ = isatty(STDOUT_FILENO) != 0;
  const absl::Time start_;
  absl::Time shown_ = absl::InfinitePast();
};
