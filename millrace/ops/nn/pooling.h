// Pooling over images and volumes, shared by the 2-D and 3-D ops.
#pragma once

#include <array>
#include <functional>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/window.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// The geometry of one pooling op. Images with channels first are treated as batch * channels images of one channel, so
// that one set of loops serves both layouts.
struct PoolGeometry {
  int64_t batch = 0;
  int64_t channels = 0;
  std::array<WindowDim, 3> dim = {};

  int64_t in_pixels() const { return dim[0].in * dim[1].in * dim[2].in; }
  int64_t out_pixels() const { return dim[0].out * dim[1].out * dim[2].out; }
  int64_t window_pixels() const { return dim[0].window * dim[1].window * dim[2].window; }
};

// INVALID_ARGUMENT, naming the dimensions, if they are incompatible. Sets *output to the shape of the result.
StatusOr<PoolGeometry> MakePoolGeometry(const WindowAttrs& attrs, const Shape& input, Shape* output);

// The window of output `o` along one dimension, clipped to the image: [begin, end).
struct WindowRange {
  int64_t begin, end;
};
inline WindowRange RangeAt(const WindowDim& d, int64_t o) {
  const int64_t start = o * d.stride - d.pad_before;
  return {std::max<int64_t>(start, 0), std::min(start + d.window, d.in)};
}

// Images that one thread handles at a time.
int64_t PoolGrain(const PoolGeometry& g);
// The same for rows of an output image.
int64_t PoolRowGrain(const PoolGeometry& g);

// The window of one output in its image.
struct PoolView {
  WindowRange depth, height, width;

  int64_t pixels() const { return (depth.end - depth.begin) * (height.end - height.begin) * (width.end - width.begin); }
  // Calls fn(pixel) with the pixel's index in the image, in row-major order.
  template <typename Fn>
  void ForPixels(const PoolGeometry& g, Fn fn) const {
    for (int64_t z = depth.begin; z < depth.end; ++z) {
      for (int64_t y = height.begin; y < height.end; ++y) {
        const int64_t row = (z * g.dim[1].in + y) * g.dim[2].in;
        for (int64_t x = width.begin; x < width.end; ++x) fn(row + x);
      }
    }
  }
};

// Calls fn(o, view) for the outputs of row `row` of an output image: those that differ in the last dimension only.
template <typename Fn>
void ForPoolRow(const PoolGeometry& g, int64_t row, Fn fn) {
  const auto& [depth, height, width] = g.dim;
  PoolView view{RangeAt(depth, row / height.out), RangeAt(height, row % height.out), {}};
  for (int64_t x = 0; x < width.out; ++x) {
    view.width = RangeAt(width, x);
    fn(row * width.out + x, view);
  }
}

// Calls fn(image, row) for all rows of all output images in parallel: fn must not write what other rows access.
template <typename Fn>
void ForPoolRows(KernelContext& ctx, const PoolGeometry& g, Fn fn) {
  const int64_t rows = g.dim[0].out * g.dim[1].out;
  ctx.ParallelFor(g.batch * rows, PoolRowGrain(g), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) fn(r / rows, r % rows);
  });
}

// Reads the window from attributes, or from inputs `ksize` and `strides` of the V2 ops.
class PoolWindow {
 public:
  explicit PoolWindow(KernelInit& init);
  // `first_input` is the index of ksize and strides if they are inputs.
  StatusOr<WindowAttrs> Get(KernelContext& ctx, int first_input) const;

 private:
  WindowAttrs attrs_;
  bool from_inputs_ = false;
};

// The geometry for the inputs of a kernel; INVALID_ARGUMENT if their shapes do not fit. *result is the shape of its
// result. AvgPoolGrad: the shape of the pool's input (in host memory), dy.
StatusOr<PoolGeometry> AvgPoolGradGeometry(KernelContext& ctx, const PoolWindow& window, Shape* result);
// MaxPoolGrad: x, y, dy; with `second` MaxPoolGradGrad: x, y, the gradient of dx.
StatusOr<PoolGeometry> MaxPoolGradGeometry(KernelContext& ctx, const PoolWindow& window, bool second, Shape* result);

Status PoolShape(ShapeContext& c);       // the output of a pool, from input 0
Status PoolInputShape(ShapeContext& c);  // outputs as input 0
Status PoolSizesShape(ShapeContext& c);  // output 0 from input 0, a shape

}  // namespace millrace
