// ResizeBilinear and ResizeBicubic with their gradients: both weigh a few neighbours in each dimension, so that they
// share their loops; they differ in the weights.
#include <array>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr int64_t kResizeGrain = 16384;  // elements per piece

// The neighbours of one position, with their weights.
struct Neighbours {
  int count = 2;
  std::array<int64_t, 4> at{};
  std::array<float, 4> weight{};
};

Neighbours TwoNeighbours(float position, int64_t size) {
  const float low = std::floor(position);
  Neighbours n;
  n.count = 2;
  n.at[1] = std::min(static_cast<int64_t>(std::ceil(position)), size - 1);
  n.at[0] = std::min(std::max<int64_t>(static_cast<int64_t>(low), 0), n.at[1]);
  n.weight[1] = position - low;
  n.weight[0] = 1 - n.weight[1];
  return n;
}

// Keys' cubic kernel in a table of 1,024 steps, as TensorFlow rounds it. `a` is -0.5 with half-pixel centers, where
// neighbours outside of the image count nothing, and -0.75 otherwise, where the edge is repeated.
class CubicTable {
 public:
  static constexpr int kSteps = 1 << 10;
  explicit CubicTable(double a) {
    for (int i = 0; i <= kSteps; ++i) {
      float x = static_cast<float>(i * 1.0 / kSteps);
      near_[i] = static_cast<float>(((a + 2) * x - (a + 3)) * x * x + 1);
      x += 1.0f;
      far_[i] = static_cast<float>(((a * x - 5 * a) * x + 8 * a) * x - 4 * a);
    }
  }
  Neighbours At(float position, int64_t size, bool drop_outside) const {
    const auto low = static_cast<int64_t>(std::floor(position));
    const auto offset = std::lrintf((position - static_cast<float>(low)) * kSteps);
    Neighbours n;
    n.count = 4;
    n.weight = {far_[offset], near_[offset], near_[kSteps - offset], far_[kSteps - offset]};
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
      const int64_t wanted = low - 1 + k;
      n.at[k] = std::clamp<int64_t>(wanted, 0, size - 1);
      if (drop_outside && n.at[k] != wanted) n.weight[k] = 0;
      sum += n.weight[k];
    }
    if (drop_outside && std::abs(sum) >= 1000.0f * std::numeric_limits<float>::min()) {
      for (float& w : n.weight) w *= 1.0f / sum;
    }
    return n;
  }

 private:
  std::array<float, kSteps + 1> near_, far_;
};

// For each of `to` positions its neighbours among `from`.
std::vector<Neighbours> NeighboursOf(const ResizeScale& scale, bool cubic, int64_t from, int64_t to) {
  static const CubicTable repeated(-0.75), dropped(-0.5);
  const float factor = scale.Factor(from, to);
  std::vector<Neighbours> all(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    const float position = scale.Position(i, factor);
    all[static_cast<size_t>(i)] = !cubic              ? TwoNeighbours(position, from)
                                  : scale.half_pixels ? dropped.At(position, from, true)
                                                      : repeated.At(position, from, false);
  }
  return all;
}

template <bool kCubic>
class ResizeLinearKernel : public Kernel {
 public:
  explicit ResizeLinearKernel(KernelInit& init) : scale_(init) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, ResizedShape(images, ctx.input(1)));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const ImageFloats in(images);
    const auto rows = NeighboursOf(scale_, kCubic, images.dim(1), shape.dim(1));
    const auto columns = NeighboursOf(scale_, kCubic, images.dim(2), shape.dim(2));
    const int64_t height = shape.dim(1), in_row = images.dim(2) * images.dim(3), out_row = shape.dim(2) * shape.dim(3);
    ctx.ParallelFor(shape.dim(0) * height, std::max<int64_t>(1, kResizeGrain / out_row),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = begin; r < end; ++r) {
                        const float* image = in.data() + r / height * images.dim(1) * in_row;
                        Row(image, in_row, shape.dim(3), rows[static_cast<size_t>(r % height)], columns,
                            out->data<float>() + r * out_row);
                      }
                    });
    return absl::OkStatus();
  }

 private:
  static void Row(const float* image, int64_t in_row, int64_t channels, const Neighbours& row,
                  const std::vector<Neighbours>& columns, float* out) {
    for (const Neighbours& column : columns) {
      for (int64_t c = 0; c < channels; ++c) {
        const auto at = [&](int y, int x) { return image[row.at[y] * in_row + column.at[x] * channels + c]; };
        if constexpr (kCubic) {
          float sum = 0;
          for (int x = 0; x < 4; ++x) {
            float down = 0;
            for (int y = 0; y < 4; ++y) down += at(y, x) * row.weight[y];
            sum += down * column.weight[x];
          }
          *out++ = sum;
        } else {
          const float top = at(0, 0) + (at(0, 1) - at(0, 0)) * column.weight[1];
          const float bottom = at(1, 0) + (at(1, 1) - at(1, 0)) * column.weight[1];
          *out++ = top + (bottom - top) * row.weight[1];
        }
      }
    }
  }

  const ResizeScale scale_;
};

template <bool kCubic>
class ResizeLinearGradKernel : public Kernel {
 public:
  explicit ResizeLinearGradKernel(KernelInit& init) : scale_(init) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &original = ctx.input(1);
    MR_RETURN_IF_ERROR(CheckResizeGrads(grads, original));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, original.shape()));
    const auto rows = NeighboursOf(scale_, kCubic, original.dim(1), grads.dim(1));
    const auto columns = NeighboursOf(scale_, kCubic, original.dim(2), grads.dim(2));
    if (out->dtype() == DType::kDouble) {
      Add(ctx, grads, original, rows, columns, out->data<double>());
      return absl::OkStatus();
    }
    std::vector<float> sums(static_cast<size_t>(original.num_elements()));
    Add(ctx, grads, original, rows, columns, sums.data());
    StoreFloats(sums.data(), out);
    return absl::OkStatus();
  }

 private:
  // One image by one thread: the order of additions is fixed.
  template <typename T>
  static void Add(KernelContext& ctx, const Tensor& grads, const Tensor& original, const std::vector<Neighbours>& rows,
                  const std::vector<Neighbours>& columns, T* out) {
    const int64_t channels = grads.dim(3), in_row = original.dim(2) * channels, in_size = original.dim(1) * in_row;
    const int64_t grad_size = grads.shape().Product(1, 4);
    ctx.ParallelFor(grads.dim(0), std::max<int64_t>(1, kResizeGrain / std::max<int64_t>(grad_size, 1)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t image = begin; image < end; ++image) {
                        T* to = out + image * in_size;
                        const float* from = grads.data<float>() + image * grad_size;
                        std::fill(to, to + in_size, T(0));
                        for (const Neighbours& row : rows) {
                          for (const Neighbours& column : columns) {
                            Spread(row, column, from, channels, in_row, to);
                            from += channels;
                          }
                        }
                      }
                    });
  }
  template <typename T>
  static void Spread(const Neighbours& row, const Neighbours& column, const float* from, int64_t channels,
                     int64_t in_row, T* to) {
    for (int y = 0; y < row.count; ++y) {
      for (int x = 0; x < column.count; ++x) {
        T* const pixel = to + row.at[y] * in_row + column.at[x] * channels;
        for (int64_t c = 0; c < channels; ++c) pixel[c] += static_cast<T>(from[c] * row.weight[y] * column.weight[x]);
      }
    }
  }

  const ResizeScale scale_;
};

Status LikeOriginal(ShapeContext& c) {
  c.set_output(0, c.input(1));
  return absl::OkStatus();
}

// Integers have no gradient.
Status ResizeLinearGradient(GradientContext& c) {
  const DType type = BaseType(c.input(0).dtype());
  if (!IsFloating(type)) return absl::OkStatus();
  const bool cubic = c.node()->is_type("ResizeBicubic");
  c.set_input_grad(0, c.Op(cubic ? "ResizeBicubicGrad" : "ResizeBilinearGrad", {c.grad(), c.input(0)},
                           c.CopyAttrs({"align_corners", "half_pixel_centers"})));
  return absl::OkStatus();
}

MILLRACE_OP(ResizeBilinear)
    .Summary("Resizes images by bilinear interpolation.")
    .Input("images: T")
    .Input("size: int32")
    .Output("resized_images: float")
    .Attr("T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double}")
    .Attr("align_corners: bool = false")
    .Attr("half_pixel_centers: bool = false")
    .Shape(ResizedImagesShape)
    .Gradient(ResizeLinearGradient);
MILLRACE_OP(ResizeBilinearGrad)
    .Summary("The gradient of ResizeBilinear.")
    .Input("grads: float")
    .Input("original_image: T")
    .Output("output: T")
    .Attr("T: {float, bfloat16, half, double}")
    .Attr("align_corners: bool = false")
    .Attr("half_pixel_centers: bool = false")
    .Shape(LikeOriginal)
    .NotDifferentiable();
MILLRACE_OP(ResizeBicubic)
    .Summary("Resizes images by bicubic interpolation.")
    .Input("images: T")
    .Input("size: int32")
    .Output("resized_images: float")
    .Attr("T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}")
    .Attr("align_corners: bool = false")
    .Attr("half_pixel_centers: bool = false")
    .Shape(ResizedImagesShape)
    .Gradient(ResizeLinearGradient);
MILLRACE_OP(ResizeBicubicGrad)
    .Summary("The gradient of ResizeBicubic.")
    .Input("grads: float")
    .Input("original_image: T")
    .Output("output: T")
    .Attr("T: {float, double}")
    .Attr("align_corners: bool = false")
    .Attr("half_pixel_centers: bool = false")
    .Shape(LikeOriginal)
    .NotDifferentiable();
MILLRACE_KERNEL(ResizeBilinear, kCpu, ResizeLinearKernel<false>);
MILLRACE_KERNEL(ResizeBilinearGrad, kCpu, ResizeLinearGradKernel<false>);
MILLRACE_KERNEL(ResizeBicubic, kCpu, ResizeLinearKernel<true>);
MILLRACE_KERNEL(ResizeBicubicGrad, kCpu, ResizeLinearGradKernel<true>);

}  // namespace
}  // namespace millrace
