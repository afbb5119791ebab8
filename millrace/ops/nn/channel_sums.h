// Sums by channel over images, in a fixed order.
#pragma once

#include <algorithm>
#include <vector>

#include "millrace/runtime/kernel.h"

namespace millrace {

// Images seen as [outer, channels, inner]: inner is 1 with channels last, outer the batch with channels
// first.
struct ChannelBlocks {
  int64_t outer = 1, channels = 1, inner = 1;
  int64_t per_channel() const { return outer * inner; }
  int64_t size() const { return outer * channels * inner; }

  static ChannelBlocks Of(const Shape& s, bool channels_first) {
    const int axis = channels_first ? 1 : s.rank() - 1;
    return {s.Product(0, axis), s.dim(axis), s.Product(axis + 1, s.rank())};
  }
};

inline constexpr int64_t kChannelGrain = 16384;

// sums[c] = sum of fn(i, c) over all elements i of channel c. Blocks of a fixed size are summed first, in
// float, and then each other in order, in double.
template <typename Fn>
void SumByChannel(KernelContext& ctx, const ChannelBlocks& v, float* sums, Fn fn) {
  if (v.inner == 1) {
    const int64_t rows = std::max<int64_t>(1, kChannelGrain / std::max<int64_t>(v.channels, 1));
    const int64_t blocks = (v.outer + rows - 1) / rows;
    std::vector<float> parts(std::max<int64_t>(blocks, 1) * v.channels, 0.0f);
    ctx.ParallelFor(v.outer, rows, [&](int64_t begin, int64_t end) {
      float* part = parts.data() + begin / rows * v.channels;
      for (int64_t r = begin; r < end; ++r) {
        const int64_t base = r * v.channels;
        for (int64_t c = 0; c < v.channels; ++c) part[c] += fn(base + c, c);
      }
    });
    for (int64_t c = 0; c < v.channels; ++c) {
      double total = 0;
      for (int64_t b = 0; b < blocks; ++b) total += parts[b * v.channels + c];
      sums[c] = static_cast<float>(total);
    }
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kChannelGrain / std::max<int64_t>(v.per_channel(), 1));
  ctx.ParallelFor(v.channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double total = 0;
      for (int64_t o = 0; o < v.outer; ++o) {
        const int64_t base = (o * v.channels + c) * v.inner;
        float part = 0;
        for (int64_t i = 0; i < v.inner; ++i) part += fn(base + i, c);
        total += part;
      }
      sums[c] = static_cast<float>(total);
    }
  });
}

// Calls fn(i, c) for every element i, of channel c.
template <typename Fn>
void ForEachByChannel(KernelContext& ctx, const ChannelBlocks& v, Fn fn) {
  const int64_t rows = v.inner == 1 ? v.outer : v.outer * v.channels;
  const int64_t width = v.inner == 1 ? v.channels : v.inner;
  const int64_t grain = std::max<int64_t>(1, kChannelGrain / std::max<int64_t>(width, 1));
  ctx.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (v.inner == 1) {
        for (int64_t i = 0; i < width; ++i) fn(r * width + i, i);
      } else {
        const int64_t c = r % v.channels;
        for (int64_t i = 0; i < width; ++i) fn(r * width + i, c);
      }
    }
  });
}

}  // namespace millrace
