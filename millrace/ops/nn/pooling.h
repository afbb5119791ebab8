// Pools over images and volumes: what the 2-D and 3-D ops share.
#pragma once

#include <array>
#include <functional>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/window.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Sizes of one pool. Images with channels first are seen as batch * channels images of one channel, so
// that one set of loops serves both layouts.
struct PoolGeometry {
  int64_t batch = 0;
  int64_t channels = 0;
  std::array<WindowDim, 3> dim = {};

  int64_t in_pixels() const { return dim[0].in * dim[1].in * dim[2].in; }
  int64_t out_pixels() const { return dim[0].out * dim[1].out * dim[2].out; }
  int64_t window_pixels() const { return dim[0].window * dim[1].window * dim[2].window; }
};

// INVALID_ARGUMENT names the dimensions that do not fit. Sets *output to the shape of the result.
StatusOr<PoolGeometry> MakePoolGeometry(const WindowAttrs& attrs, const Shape& input, Shape* output);

// The part of the image that output `o` sees along one dimension: [begin, end).
struct WindowRange {
  int64_t begin, end;
};
inline WindowRange RangeAt(const WindowDim& d, int64_t o) {
  const int64_t start = o * d.stride - d.pad_before;
  return {std::max<int64_t>(start, 0), std::min(start + d.window, d.in)};
}

// Images that one thread handles at a time.
int64_t PoolGrain(const PoolGeometry& g);

// Calls fn(pixel, n) with the pixel's number in the image for all pixels that output `o` (a number in
// the output image) sees, in row-major order.
template <typename Fn>
void ForWindow(const PoolGeometry& g, int64_t o, Fn fn) {
  const auto& [depth, height, width] = g.dim;
  const WindowRange w = RangeAt(width, o % width.out);
  const WindowRange h = RangeAt(height, o / width.out % height.out);
  const WindowRange d = RangeAt(depth, o / (width.out * height.out));
  for (int64_t z = d.begin; z < d.end; ++z) {
    for (int64_t y = h.begin; y < h.end; ++y) {
      for (int64_t x = w.begin; x < w.end; ++x) fn((z * height.in + y) * width.in + x);
    }
  }
}

// Reads the window from attributes, or from inputs `ksize` and `strides` of the V2 ops.
class PoolWindow {
 public:
  explicit PoolWindow(KernelInit& init);
  // first_input: where ksize and strides are, when they are inputs.
  StatusOr<WindowAttrs> Get(KernelContext& ctx, int first_input) const;

 private:
  WindowAttrs attrs_;
  bool from_inputs_ = false;
};

Status PoolShape(ShapeContext& c);         // the output of a pool, from input 0
Status PoolInputShape(ShapeContext& c);    // outputs as input 0
Status PoolSizesShape(ShapeContext& c);    // output 0 from input 0, a shape

}  // namespace millrace
