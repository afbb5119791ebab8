// What the kernels over images share: batches of images (batch, height, width, channels) as floats.
#pragma once

#include <cmath>
#include <vector>

#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

// The elements of a tensor of any real type as floats: its own memory if it is float, otherwise converted.
class ImageFloats {
 public:
  explicit ImageFloats(const Tensor& t);
  const float* data() const { return data_; }

 private:
  std::vector<float> converted_;
  const float* data_ = nullptr;
};

// Stores floats as the elements of `t`, converting them to its type (float, half, bfloat16 or double).
void StoreFloats(const float* values, Tensor* t);

// How the positions of a resized image map to those of the original.
struct ResizeScale {
  bool align_corners = false;
  bool half_pixels = false;

  ResizeScale() = default;
  // Reads the two attributes; fails if both are set.
  explicit ResizeScale(KernelInit& init);

  float Factor(int64_t from, int64_t to) const {
    return align_corners && to > 1 ? static_cast<float>(from - 1) / static_cast<float>(to - 1)
                                   : static_cast<float>(from) / static_cast<float>(to);
  }
  float Position(int64_t i, float factor) const {
    const auto at = static_cast<float>(i);
    return half_pixels ? (at + 0.5f) * factor - 0.5f : at * factor;
  }
};

// Checks images and `size` (height and width), and returns the shape of the resized images.
StatusOr<Shape> ResizedShape(const Tensor& images, const Tensor& size);
// The same statically; also for gradients, whose `size` is that of the original images.
Status ResizedImagesShape(ShapeContext& c);
// The same with `size` in input i.
Status TransformedImagesShape(ShapeContext& c, int i);
// Checks the gradients of resized images against the original images.
Status CheckResizeGrads(const Tensor& grads, const Tensor& original);

}  // namespace millrace
