// Images seen by channel.
#pragma once

#include <cstdint>

#include "millrace/tensor/shape.h"

namespace millrace {

// [outer, channels, inner]: inner is 1 with channels last, outer the batch with channels first.
struct ChannelBlocks {
  int64_t outer = 1, channels = 1, inner = 1;
  int64_t per_channel() const { return outer * inner; }
  int64_t size() const { return outer * channels * inner; }

  static ChannelBlocks Of(const Shape& s, bool channels_first) {
    const int axis = channels_first ? 1 : s.rank() - 1;
    return {s.Product(0, axis), s.dim(axis), s.Product(axis + 1, s.rank())};
  }
};

}  // namespace millrace
