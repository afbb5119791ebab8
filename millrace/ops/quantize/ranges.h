// The ranges of quantized tensors: one for the whole tensor, or one per slice along an axis.
#pragma once

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

// The storage types of quantized numbers; see UnquantizedType. Access their tensors with raw<T>().
using QuantizedTypes = Types<int8_t, uint8_t, int16_t, uint16_t, int32_t>;

// A tensor viewed as outer x count x inner, where each of `count` slices has its own range.
struct RangeSlices {
  int64_t outer = 1;
  int64_t count = 1;
  int64_t inner = 1;

  // Axis -1 is one slice of everything; other axes are below the rank.
  static RangeSlices Of(const Shape& shape, int64_t axis) {
    if (axis < 0) return {1, 1, shape.num_elements()};
    const int at = static_cast<int>(axis);
    return {shape.Product(0, at), shape.dim(at), shape.Product(at + 1, shape.rank())};
  }

  // Calls body(slice, first element, number of elements) for all elements, in parallel.
  void ForEach(KernelContext& ctx, absl::FunctionRef<void(int64_t, int64_t, int64_t)> body) const {
    constexpr int64_t kGrain = 16384;
    if (outer * count == 1) {
      ctx.ParallelFor(inner, kGrain, [&](int64_t begin, int64_t end) { body(0, begin, end - begin); });
      return;
    }
    if (inner == 0) return;
    ctx.ParallelFor(outer * count, std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row % count, row * inner, inner);
    });
  }
};

// Output 0 has the shape of input 0. Inputs `min` and `max` are scalars for axis -1, otherwise vectors as long as that
// axis; returns their shape.
StatusOr<PartialShape> RangeShape(ShapeContext& c, int64_t axis, int min, int max);
// The same with the axis of the attr, for inputs 1 and 2; outputs from 1 on have the shape of a range.
Status QuantizeShape(ShapeContext& c);

}  // namespace millrace
