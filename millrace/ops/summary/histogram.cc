#include "millrace/ops/summary/histogram.h"

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

// The upper limits of the buckets, from the lowest to the highest double.
const std::vector<double>& Limits() {
  static const auto* const limits = [] {
    std::vector<double> positive;
    for (double v = 1e-12; v < 1e20; v *= 1.1) positive.push_back(v);
    positive.push_back(std::numeric_limits<double>::max());
    auto* all = new std::vector<double>;
    for (auto at = positive.rbegin(); at != positive.rend(); ++at) all->push_back(-*at);
    all->push_back(0);
    all->insert(all->end(), positive.begin(), positive.end());
    return all;
  }();
  return *limits;
}

}  // namespace

Histogram::Histogram() : min_(Limits().back()), max_(-Limits().back()), counts_(Limits().size()) {}

void Histogram::Add(double value) {
  const std::vector<double>& limits = Limits();
  const size_t at = static_cast<size_t>(std::upper_bound(limits.begin(), limits.end(), value) - limits.begin());
  counts_[std::min(at, counts_.size() - 1)] += 1;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  num_ += 1;
  sum_ += value;
  sum_squares_ += value * value;
}

void Histogram::ToProto(pb::HistogramProto* proto) const {
  proto->set_min(min_);
  proto->set_max(max_);
  proto->set_num(num_);
  proto->set_sum(sum_);
  proto->set_sum_squares(sum_squares_);
  for (size_t i = 0; i < counts_.size();) {
    size_t last = i++;
    if (counts_[last] <= 0) {
      while (i < counts_.size() && counts_[i] <= 0) last = i++;
    }
    proto->add_bucket_limit(Limits()[last]);
    proto->add_bucket(counts_[last]);
  }
}

}  // namespace millrace
