#include "millrace/launch/hang_watch.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kLongestSilence = absl::Minutes(1);

// Removes the numbers of seconds, so that a report does not count as new only because time has passed.
std::string WithoutNumbers(const std::string& text) {
  std::string kept;
  for (const char c : text) {
    if (!absl::ascii_isdigit(c) && c != '.') kept.push_back(c);
  }
  return kept;
}

}  // namespace

void HangWatch::OnMove(absl::Time now, absl::Duration longest_step) {
  moved_ = now;
  cause_.clear();
  shown_.clear();
  pause_ = options_.after / 4;
  ask_at_ = now + std::max(options_.after, 3 * longest_step);
}

bool HangWatch::OnAnswer(absl::Time now, const std::string& cause) {
  asking_ = false;
  cause_ = cause;
  // A hanging job is checked often, since the hang may change or end; a job that is only quiet is checked less and less
  // often.
  pause_ = cause_.empty() ? std::min(2 * pause_, std::max(kLongestSilence, options_.after)) : options_.after;
  ask_at_ = now + pause_;
  if (cause_.empty()) return false;
  const std::string same = WithoutNumbers(cause_);
  if (same == shown_ && now - shown_at_ < options_.repeat) return false;
  shown_ = same;
  shown_at_ = now;
  return true;
}

bool HangWatch::ShouldKill(absl::Time now) const { return !cause_.empty() && now - moved_ >= options_.kill; }

}  // namespace millrace::launch
