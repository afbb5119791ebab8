// ResizeArea: every output pixel is the mean of the part of the image that it covers.
#include <cmath>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The input pixels of one dimension that an output pixel covers, with how much of each.
struct Cover {
  int64_t begin = 0, end = 0;  // may exceed the image, whose last pixel is then used
  std::vector<float> parts;
};

struct CoveredDim {
  float scale = 0;  // input pixels per output pixel
  std::vector<Cover> covers;

  CoveredDim(int64_t from, int64_t to, bool align_corners) {
    scale = align_corners && to > 1 ? static_cast<float>(from - 1) / static_cast<float>(to - 1)
                                    : static_cast<float>(from) / static_cast<float>(to);
    covers.resize(static_cast<size_t>(to));
    for (int64_t i = 0; i < to; ++i) {
      const float low = static_cast<float>(i) * scale, high = static_cast<float>(i + 1) * scale;
      Cover& cover = covers[static_cast<size_t>(i)];
      cover.begin = static_cast<int64_t>(std::floor(low));
      cover.end = static_cast<int64_t>(std::ceil(high));
      for (int64_t k = cover.begin; k < cover.end; ++k) {
        const float left = static_cast<float>(k), right = static_cast<float>(k + 1);
        cover.parts.push_back(left < low ? (right > high ? scale : right - low) : (right > high ? high - left : 1.0f));
      }
    }
  }
};

using ImageTypes = Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, int64_t, half, float, double, bfloat16>;

class ResizeAreaKernel : public Kernel {
 public:
  explicit ResizeAreaKernel(KernelInit& init) {
    init.Attr("align_corners", &align_corners_);
    if (!DispatchType(ImageTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &x = ctx.input(0), &size = ctx.input(1);
    if (x.rank() != 4) return InvalidArgument("input must be 4-dimensional, but has shape ", x.shape().ToString());
    if (size.rank() != 1 || size.dim(0) != 2) {
      return InvalidArgument("size must be a vector of height and width, but has shape ", size.shape().ToString());
    }
    const int32_t height = size.data<int32_t>()[0], width = size.data<int32_t>()[1];
    if (height <= 0 || width <= 0)
      return InvalidArgument("output dimensions must be positive, not ", height, " by ", width);
    if (x.dim(3) == 0) return InvalidArgument("image must have at least one channel");
    if (x.dim(1) == 0 || x.dim(2) == 0) return InvalidArgument("input image must be of non-zero size");
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({x.dim(0), height, width, x.dim(3)}));
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const CoveredDim rows(x.dim(1), height, align_corners_), columns(x.dim(2), width, align_corners_);
    DispatchType(ImageTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t row_cost = std::max<int64_t>(1, width * x.dim(3));
      ctx.ParallelFor(shape.dim(0) * height, std::max<int64_t>(1, kElementGrain / row_cost),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t r = begin; r < end; ++r) {
                          const T* image = x.data<T>() + r / height * x.shape().Product(1, 4);
                          Row(image, x, rows.covers[static_cast<size_t>(r % height)], columns,
                              1.0f / (rows.scale * columns.scale), y->data<float>() + r * width * x.dim(3));
                        }
                      });
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  static void Row(const T* image, const Tensor& x, const Cover& rows, const CoveredDim& columns, float factor,
                  float* out) {
    const int64_t channels = x.dim(3);
    for (const Cover& cover : columns.covers) {
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (int64_t i = rows.begin; i < rows.end; ++i) {
          const T* row = image + std::clamp<int64_t>(i, 0, x.dim(1) - 1) * x.dim(2) * channels;
          const float part = rows.parts[static_cast<size_t>(i - rows.begin)];
          for (int64_t k = cover.begin; k < cover.end; ++k) {
            const int64_t at = std::clamp<int64_t>(k, 0, x.dim(2) - 1);
            sum += static_cast<float>(row[at * channels + c]) * part *
                   cover.parts[static_cast<size_t>(k - cover.begin)] * factor;
          }
        }
        *out++ = sum;
      }
    }
  }

  bool align_corners_ = false;
};

MILLRACE_OP(ResizeArea)
    .Summary("Resizes images by area averaging.")
    .Input("images: T")
    .Input("size: int32")
    .Output("resized_images: float")
    .Attr("T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}")
    .Attr("align_corners: bool = false")
    .Shape(ResizedImagesShape)
    .NotDifferentiable();
MILLRACE_KERNEL(ResizeArea, kCpu, ResizeAreaKernel);

}  // namespace
}  // namespace millrace
