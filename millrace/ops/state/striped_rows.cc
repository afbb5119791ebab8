#include "millrace/ops/state/striped_rows.h"

#include <array>
#include <vector>

namespace millrace {
namespace {

// The number of elements that is worth another thread.
constexpr int64_t kGrainElements = 16384;
// The maximum number of slices processed while holding a stripe.
constexpr int64_t kMostPerLock = 256;
// Fewer slices than this are not worth sorting.
constexpr int64_t kFew = 8;

// The thread-safety analysis cannot follow a run-time number of locks.
void WithStripes(absl::Span<RowLocks* const> locks, int stripe,
                 absl::FunctionRef<void()> body) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (RowLocks* lock : locks) lock->stripe(stripe).Lock();
  body();
  for (RowLocks* lock : locks) lock->stripe(stripe).Unlock();
}

// The indices of all slices, grouped by stripe, in order within each group.
struct ByStripe {
  ByStripe(const RowLayout& layout, const SliceAddresses& where) {
    const int64_t n = static_cast<int64_t>(where.offsets.size());
    const StripeFinder finder(layout);
    std::vector<uint8_t> stripes(n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t offset = where.offsets[i];
      stripes[i] = offset == SliceAddresses::kSkip ? kLeftOut : static_cast<uint8_t>(finder.StripeOf(offset));
      ++begin[stripes[i] + 1];
    }
    for (size_t s = 1; s < begin.size(); ++s) begin[s] += begin[s - 1];
    std::array<int64_t, kLeftOut + 1> next;
    std::copy_n(begin.begin(), next.size(), next.begin());
    slices.resize(n);
    for (int64_t i = 0; i < n; ++i) slices[next[stripes[i]]++] = i;
  }

  static constexpr uint8_t kLeftOut = RowLayout::kStripes;
  std::array<int64_t, kLeftOut + 2> begin{};  // of each stripe's part of `slices`
  std::vector<int64_t> slices;
};

}  // namespace

// The thread-safety analysis cannot follow a lock that is chosen at run time.
void StripeHold::Release() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (held_ >= 0) locks_->stripe(held_).Unlock();
  held_ = -1;
}
void StripeHold::Take(int stripe) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Release();
  locks_->stripe(stripe).Lock();
  held_ = stripe;
  left_ = kMostPerLock;
}

void ForEachSlice(KernelContext& ctx, const RowLayout& layout, absl::Span<RowLocks* const> locks,
                  const SliceAddresses& where, absl::FunctionRef<void(const SliceBatch&)> body) {
  const int64_t n = static_cast<int64_t>(where.offsets.size());
  if (where.size == 0) return;
  if (n < kFew) {
    for (int64_t i = 0; i < n; ++i) {
      if (where.offsets[i] == SliceAddresses::kSkip) continue;
      WithStripes(locks, layout.StripeOf(where.offsets[i]), [&] { body({&i, 1, 1}); });
    }
    return;
  }
  const ByStripe sorted(layout, where);
  const int64_t per_stripe = std::max<int64_t>(1, n * where.size / RowLayout::kStripes);
  const int64_t grain = std::max<int64_t>(1, kGrainElements / per_stripe);
  ctx.ParallelFor(RowLayout::kStripes, grain, [&](int64_t first, int64_t last) {
    for (int64_t stripe = first; stripe < last; ++stripe) {
      const int64_t end = sorted.begin[stripe + 1];
      for (int64_t at = sorted.begin[stripe]; at < end; at += kMostPerLock) {
        const SliceBatch batch{sorted.slices.data() + at, std::min<int64_t>(kMostPerLock, end - at),
                               sorted.begin[last] - at};
        WithStripes(locks, static_cast<int>(stripe), [&] { body(batch); });
      }
    }
  });
}

}  // namespace millrace
