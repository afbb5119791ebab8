// A box of elements that is copied from one place to another, each with strides of its own.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace millrace {

// Strides are in elements and may be negative; a source stride of 0 repeats, a target stride must not be 0. The order
// of dimensions does not matter.
struct CopyBox {
  struct Dim {
    int64_t size;
    int64_t from;
    int64_t to;
  };
  absl::InlinedVector<Dim, 8> dims;

  void Add(int64_t size, int64_t from, int64_t to) { dims.push_back({size, from, to}); }
};

}  // namespace millrace
