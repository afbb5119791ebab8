#include "millrace/ops/random/candidate_sampler.h"

#include <cmath>
#include <unordered_set>

#include "millrace/base/exception_status.h"
#include "millrace/base/mutex.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/tensor/memory_budget.h"

namespace millrace::random {
namespace {

// The expected count of a class of probability p in a batch that took `tries` draws.
float ExpectedCount(float p, int64_t size, int64_t tries) {
  if (tries == size) return p * static_cast<float>(size);
  return static_cast<float>(-std::expm1(static_cast<double>(tries) * std::log1p(-p)));
}

// Uniform in [0, n), by rejection.
template <typename U, typename Next>
U EvenBelow(U n, const Next& next) {
  if ((n & (n - 1)) == 0) return next() & (n - 1);
  const U rejected = static_cast<U>(~U{0}) % n + 1;
  U number = next();
  while (number < rejected) number = next();
  return number % n;
}

class UniformSampler : public RangeSampler {
 public:
  using RangeSampler::RangeSampler;
  int64_t Sample(SingleNumbers& numbers) const override {
    return static_cast<int64_t>(EvenBelow<uint64_t>(static_cast<uint64_t>(range_), [&] {
      const uint32_t low = numbers();
      return ToUInt64(low, numbers());
    }));
  }
  float Probability(int64_t) const override { return static_cast<float>(1.0 / static_cast<double>(range_)); }
};

class LogUniformSampler : public RangeSampler {
 public:
  explicit LogUniformSampler(int64_t range) : RangeSampler(range), log_range_(std::log1p(static_cast<double>(range))) {}
  int64_t Sample(SingleNumbers& numbers) const override {
    const int64_t value = static_cast<int64_t>(std::exp(numbers.Double() * log_range_)) - 1;
    return value % range_;
  }
  float Probability(int64_t value) const override {
    const double v = static_cast<double>(value);
    return static_cast<float>(std::log((v + 2.0) / (v + 1.0)) / log_range_);
  }

 private:
  const double log_range_;
};

class AllSampler : public RangeSampler {
 public:
  using RangeSampler::RangeSampler;
  Status SampleBatch(const Philox&, bool, absl::Span<int64_t> batch, absl::Span<float> batch_counts,
                     absl::Span<const int64_t>, absl::Span<float> extra_counts) override {
    for (size_t i = 0; i < batch.size(); ++i) batch[i] = static_cast<int64_t>(i);
    std::fill(batch_counts.begin(), batch_counts.end(), 1.0f);
    std::fill(extra_counts.begin(), extra_counts.end(), 1.0f);
    return absl::OkStatus();
  }

 protected:
  int64_t Sample(SingleNumbers&) const override { return 0; }
  float Probability(int64_t) const override { return 1; }
};

Status CheckInRange(absl::Span<const int64_t> classes, int64_t range) {
  for (int64_t value : classes) {
    if (value < 0 || value >= range) return InvalidArgument("class ", value, " is not in [0, ", range, ")");
  }
  return absl::OkStatus();
}

// Integer weights in a binary tree of sums: draws and updates in logarithmic time.
class UnigramSampler : public RangeSampler {
 public:
  explicit UnigramSampler(int64_t range) : RangeSampler(range) {
    if (const Status room = CheckRoom(range, 4 * sizeof(sums_[0]), "the weights of a sampler"); !room.ok())
      throw OutOfMemory(std::string(room.message()));
    while (leaves_ < range) leaves_ *= 2;
    sums_.resize(2 * leaves_);
    for (int64_t i = 0; i < range; ++i) sums_[leaves_ + i] = 1;
    for (int64_t i = leaves_ - 1; i > 0; --i) sums_[i] = sums_[2 * i] + sums_[2 * i + 1];
  }

  Status SampleBatch(const Philox& stream, bool unique, absl::Span<int64_t> batch, absl::Span<float> batch_counts,
                     absl::Span<const int64_t> extras, absl::Span<float> extra_counts) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(RangeSampler::SampleBatch(stream, unique, batch, batch_counts, extras, extra_counts));
    for (int64_t value : extras) {
      for (int64_t i = leaves_ + value; i > 0; i /= 2) ++sums_[i];
    }
    return absl::OkStatus();
  }
  Status CheckClasses(absl::Span<const int64_t> classes) const override { return CheckInRange(classes, range_); }

 protected:
  int64_t Sample(SingleNumbers& numbers) const override {
    auto rest = static_cast<int32_t>(EvenBelow<uint32_t>(static_cast<uint32_t>(sums_[1]), [&] { return numbers(); }));
    int64_t at = 1;
    while (at < leaves_) {
      at *= 2;
      if (rest >= sums_[at]) rest -= sums_[at++];
    }
    return at - leaves_;
  }
  float Probability(int64_t value) const override {
    return static_cast<float>(sums_[leaves_ + value]) / static_cast<float>(sums_[1]);
  }

 private:
  int64_t leaves_ = 1;
  std::vector<int32_t> sums_;  // guarded by mu_, which SampleBatch holds all through
  Mutex mu_;
};

// The alias method: a uniform draw of a class, then a weighted choice between it and its alias.
class FixedUnigramSampler : public RangeSampler {
 public:
  FixedUnigramSampler(int64_t range, std::vector<float> weights) : RangeSampler(range), weights_(std::move(weights)) {
    for (float w : weights_) total_ += w;
    Build();
  }
  Status CheckClasses(absl::Span<const int64_t> classes) const override { return CheckInRange(classes, range_); }

 protected:
  int64_t Sample(SingleNumbers& numbers) const override {
    const float r = ToFloat(numbers());
    const auto at = static_cast<int64_t>(EvenBelow<uint32_t>(static_cast<uint32_t>(range_), [&] { return numbers(); }));
    return r < limits_[at] ? at : aliases_[at];
  }
  float Probability(int64_t value) const override { return weights_[value] / total_; }

 private:
  void Build() {
    const int64_t n = range_;
    limits_.assign(n, 1.0f);
    aliases_.resize(n);
    std::vector<double> share(n);
    std::vector<int64_t> high, low;
    const double mean = static_cast<double>(total_) / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      share[i] = weights_[i] / mean;
      aliases_[i] = i;
      (share[i] < 1 ? low : high).push_back(i);
    }
    while (!high.empty() && !low.empty()) {
      const int64_t small = low.back(), large = high.back();
      low.pop_back();
      limits_[small] = static_cast<float>(share[small]);
      aliases_[small] = large;
      share[large] -= 1 - share[small];
      if (share[large] < 1) {
        high.pop_back();
        low.push_back(large);
      }
    }
    for (int64_t i : low) limits_[i] = 1;
  }

  const std::vector<float> weights_;
  float total_ = 0;
  std::vector<float> limits_;
  std::vector<int64_t> aliases_;
};

}  // namespace

Status RangeSampler::SampleBatch(const Philox& stream, bool unique, absl::Span<int64_t> batch,
                                 absl::Span<float> batch_counts, absl::Span<const int64_t> extras,
                                 absl::Span<float> extra_counts) {
  SingleNumbers numbers(stream);
  const auto size = static_cast<int64_t>(batch.size());
  int64_t tries = size;
  if (unique) {
    std::unordered_set<int64_t> used;
    tries = 0;
    for (int64_t picked = 0; picked < size; ++tries) {
      if (tries >= (int64_t{1} << 25))
        return ResourceExhausted("cannot find ", size, " different classes among ", range_);
      const int64_t value = Sample(numbers);
      if (used.insert(value).second) batch[picked++] = value;
    }
  } else {
    for (int64_t& value : batch) value = Sample(numbers);
  }
  for (int64_t i = 0; i < size; ++i) batch_counts[i] = ExpectedCount(Probability(batch[i]), size, tries);
  for (size_t i = 0; i < extras.size(); ++i) extra_counts[i] = ExpectedCount(Probability(extras[i]), size, tries);
  return absl::OkStatus();
}

std::unique_ptr<RangeSampler> NewUniformSampler(int64_t range) { return std::make_unique<UniformSampler>(range); }
std::unique_ptr<RangeSampler> NewLogUniformSampler(int64_t range) { return std::make_unique<LogUniformSampler>(range); }
std::unique_ptr<RangeSampler> NewAllSampler(int64_t range) { return std::make_unique<AllSampler>(range); }
std::unique_ptr<RangeSampler> NewUnigramSampler(int64_t range) { return std::make_unique<UnigramSampler>(range); }

StatusOr<std::unique_ptr<RangeSampler>> NewFixedUnigramSampler(const FixedUnigramOptions& options,
                                                               const std::vector<float>& weights) {
  // Of the classes, this shard has every `shards`-th.
  std::vector<float> mine;
  int64_t id = 0;
  const auto add = [&](double weight) {
    if (id++ % options.shards == options.shard) mine.push_back(static_cast<float>(weight));
  };
  for (int64_t i = 0; i < options.reserved; ++i) add(0);
  for (float w : weights) add(options.distortion == 1 ? w : std::pow(w, options.distortion));
  if (static_cast<int64_t>(mine.size()) != options.range) {
    return InvalidArgument("range is ", options.range, " must be equal to weights size ", mine.size());
  }
  double total = 0;
  for (float w : mine) {
    if (!(w >= 0) || !std::isfinite(w)) return InvalidArgument("a weight must be a number and not negative: ", w);
    total += w;
  }
  if (!(total > 0) || !std::isfinite(total)) return InvalidArgument("the weights must add up to a positive number");
  return std::make_unique<FixedUnigramSampler>(options.range, std::move(mine));
}

}  // namespace millrace::random
