// Distributions over classes 0 .. range-1 for sampled losses; draws the same numbers as TensorFlow.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "millrace/base/philox.h"
#include "millrace/base/status.h"

namespace millrace::random {

class SingleNumbers;

// Thread-safe.
class RangeSampler {
 public:
  explicit RangeSampler(int64_t range) : range_(range) {}
  virtual ~RangeSampler() = default;
  int64_t range() const { return range_; }

  // Draws `batch`, without duplicates if `unique`, and computes the expected count of each of them and of `extras` in
  // such a batch. `unique` requires as many classes of non-zero probability. RESOURCE_EXHAUSTED if too many tries are
  // needed.
  virtual Status SampleBatch(const Philox& stream, bool unique, absl::Span<int64_t> batch,
                             absl::Span<float> batch_counts, absl::Span<const int64_t> extras,
                             absl::Span<float> extra_counts);
  // INVALID_ARGUMENT for a class outside the sampler's table.
  virtual Status CheckClasses(absl::Span<const int64_t>) const { return absl::OkStatus(); }

 protected:
  virtual int64_t Sample(SingleNumbers& numbers) const = 0;
  virtual float Probability(int64_t value) const = 0;

  const int64_t range_;
};

// Larger ranges would make tables of gigabytes.
inline constexpr int64_t kMaxWeightedRange = int64_t{1} << 28;

std::unique_ptr<RangeSampler> NewUniformSampler(int64_t range);
std::unique_ptr<RangeSampler> NewLogUniformSampler(int64_t range);
std::unique_ptr<RangeSampler> NewAllSampler(int64_t range);
// Learns the frequencies of the classes that it is given.
std::unique_ptr<RangeSampler> NewUnigramSampler(int64_t range);

struct FixedUnigramOptions {
  int64_t range = 0;
  double distortion = 1;
  int64_t reserved = 0;  // classes of weight 0 before the given ones
  int64_t shards = 1, shard = 0;
};
// INVALID_ARGUMENT if the number of weights differs from that of classes, or if none is positive.
StatusOr<std::unique_ptr<RangeSampler>> NewFixedUnigramSampler(const FixedUnigramOptions& options,
                                                               const std::vector<float>& weights);

}  // namespace millrace::random
