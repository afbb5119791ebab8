#include "millrace/dashboard/history.h"

#include <algorithm>
#include <cmath>

namespace millrace::dashboard {
namespace {

std::optional<Spread> JoinSpreads(const std::optional<Spread>& a, const std::optional<Spread>& b) {
  if (!a || !b) return a ? a : b;
  // Halves first: the sum of two large numbers is not finite.
  return Spread{std::min(a->low, b->low), a->middle / 2 + b->middle / 2, std::max(a->high, b->high)};
}

Sample JoinSamples(const Sample& a, const Sample& b) {
  return {.seconds = b.seconds,
          .step = b.step ? b.step : a.step,
          .steps_per_second = JoinSpreads(a.steps_per_second, b.steps_per_second),
          .loss = JoinSpreads(a.loss, b.loss),
          .bad_losses = std::max(a.bad_losses, b.bad_losses)};
}

}  // namespace

std::optional<Spread> Spread::Of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return Spread{values.front(), values[values.size() / 2], values.back()};
}

void History::Add(Sample sample) {
  if (!samples_.empty()) {
    Sample& last = samples_.rbegin()->second;
    const auto before = std::next(samples_.rbegin());
    if (before != samples_.rend() && last.seconds - before->second.seconds < resolution_) {
      last = JoinSamples(last, sample);
      return;
    }
  }
  samples_.emplace(++last_, std::move(sample));
  if (samples_.size() > most_) Thin();
}

void History::Thin() {
  std::map<int64_t, Sample> joined;
  for (auto it = samples_.begin(); it != samples_.end(); ++it) {
    const auto next = std::next(it);
    if (next == samples_.end()) {
      joined.insert(*it);
      break;
    }
    joined.emplace(next->first, JoinSamples(it->second, next->second));
    it = next;
  }
  samples_ = std::move(joined);
  if (samples_.size() < 2) return;
  const double span = samples_.rbegin()->second.seconds - samples_.begin()->second.seconds;
  resolution_ = span / static_cast<double>(samples_.size());
}

}  // namespace millrace::dashboard
