// ResizeNearestNeighbor: every output pixel takes the nearest input pixel.
#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status ResizeNearestGradient(GradientContext& c) {
  const Endpoint size = c.Op("StridedSlice", {c.Shape(c.input(0)), c.Ints({1}), c.Ints({3}), c.Ints({1})});
  c.set_input_grad(
      0, c.Op("ResizeNearestNeighborGrad", {c.grad(), size}, c.CopyAttrs({"align_corners", "half_pixel_centers"})));
  return absl::OkStatus();
}

MILLRACE_OP(ResizeNearestNeighbor)
    .Summary("Resizes images by nearest-neighbour interpolation.")
    .Input("images: T")
    .Input("size: int32")
    .Output("resized_images: T")
    .Attr("T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}")
    .Attr("align_corners: bool = false")
    .Attr("half_pixel_centers: bool = false")
    .Shape(ResizedImagesShape)
    .Gradient(ResizeNearestGradient);

MILLRACE_OP(ResizeNearestNeighborGrad)
    .Summary("The gradient of ResizeNearestNeighbor.")
    .Input("grads: T")
    .Input("size: int32")
    .Output("output: T")
    .Attr("T: {uint8, int8, int32, half, float, double, bfloat16}")
    .Attr("align_corners: bool = false")
    .Attr("half_pixel_centers: bool = false")
    .Shape(ResizedImagesShape)
    .NotDifferentiable();

// For each of `to` positions, the nearest of `from`.
struct Nearest {
  bool align_corners = false;
  bool half_pixels = false;

  explicit Nearest(KernelInit& init) {
    init.Attr("align_corners", &align_corners);
    init.Attr("half_pixel_centers", &half_pixels);
    if (align_corners && half_pixels) {
      init.Fail(InvalidArgument("align_corners and half_pixel_centers exclude each other"));
    }
  }
  std::vector<int64_t> Map(int64_t from, int64_t to) const {
    const float scale = align_corners && to > 1 ? static_cast<float>(from - 1) / static_cast<float>(to - 1)
                                                : static_cast<float>(from) / static_cast<float>(to);
    std::vector<int64_t> places(to);
    for (int64_t i = 0; i < to; ++i) {
      const float at = half_pixels ? (static_cast<float>(i) + 0.5f) * scale : static_cast<float>(i) * scale;
      const int64_t place = static_cast<int64_t>(align_corners ? std::round(at) : std::floor(at));
      places[i] = std::clamp<int64_t>(place, 0, from - 1);
    }
    return places;
  }
};

// Checks images and size, and returns the shape of the resized images.
StatusOr<Shape> OtherShape(const Tensor& images, const Tensor& size) {
  if (images.rank() != 4)
    return InvalidArgument("images must have 4 dimensions, but have shape ", images.shape().ToString());
  if (size.rank() != 1 || size.dim(0) != 2) {
    return InvalidArgument("size must be a vector of height and width, but has shape ", size.shape().ToString());
  }
  const int32_t* s = size.data<int32_t>();
  if (s[0] <= 0 || s[1] <= 0 || images.dim(1) == 0 || images.dim(2) == 0) {
    return InvalidArgument("sizes must be positive, but images have shape ", images.shape().ToString(),
                           " and the size is ", s[0], " by ", s[1]);
  }
  return Shape::Make({images.dim(0), s[0], s[1], images.dim(3)});
}

class ResizeNearestKernel : public Kernel {
 public:
  explicit ResizeNearestKernel(KernelInit& init) : nearest_(init) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, OtherShape(x, ctx.input(1)));
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, shape));
    const auto rows = nearest_.Map(x.dim(1), shape.dim(1)), columns = nearest_.Map(x.dim(2), shape.dim(2));
    const size_t pixel = x.dim(3) * SizeOf(x.dtype());
    const char* in = static_cast<const char*>(x.raw_data());
    char* out = static_cast<char*>(y->raw_data());
    const int64_t width = shape.dim(2);
    ctx.ParallelFor(shape.dim(0) * shape.dim(1),
                    std::max<int64_t>(1, kElementGrain / std::max<int64_t>(width * x.dim(3), 1)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = begin; r < end; ++r) {
                        const int64_t image = r / shape.dim(1), from = rows[r % shape.dim(1)];
                        const char* row = in + (image * x.dim(1) + from) * x.dim(2) * pixel;
                        for (int64_t c = 0; c < width; ++c) {
                          std::copy_n(row + columns[c] * pixel, pixel, out + (r * width + c) * pixel);
                        }
                      }
                    });
    return absl::OkStatus();
  }

 private:
  const Nearest nearest_;
};

class ResizeNearestGradKernel : public Kernel {
 public:
  explicit ResizeNearestGradKernel(KernelInit& init) : nearest_(init) {
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& dy = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, OtherShape(dy, ctx.input(1)));
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, shape));
    DispatchType(RealTypes{}, dy.dtype(), [&](auto tag) { Add<typename decltype(tag)::type>(ctx, dy, dx); });
    return absl::OkStatus();
  }

 private:
  // One image by one thread: the order of additions is fixed.
  template <typename T>
  void Add(KernelContext& ctx, const Tensor& dy, Tensor* dx) const {
    const auto rows = nearest_.Map(dx->dim(1), dy.dim(1)), columns = nearest_.Map(dx->dim(2), dy.dim(2));
    const int64_t channels = dy.dim(3), in_size = dx->shape().Product(1, 4), out_size = dy.shape().Product(1, 4);
    ctx.ParallelFor(dy.dim(0), std::max<int64_t>(1, kElementGrain / std::max<int64_t>(out_size, 1)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t image = begin; image < end; ++image) {
                        T* to = dx->data<T>() + image * in_size;
                        const T* from = dy.data<T>() + image * out_size;
                        std::fill(to, to + in_size, T(0));
                        for (size_t r = 0; r < rows.size(); ++r) {
                          for (size_t c = 0; c < columns.size(); ++c, from += channels) {
                            T* pixel = to + (rows[r] * dx->dim(2) + columns[c]) * channels;
                            for (int64_t i = 0; i < channels; ++i) pixel[i] += from[i];
                          }
                        }
                      }
                    });
  }
  const Nearest nearest_;
};

MILLRACE_KERNEL(ResizeNearestNeighbor, kCpu, ResizeNearestKernel);
MILLRACE_KERNEL(ResizeNearestNeighborGrad, kCpu, ResizeNearestGradKernel);

}  // namespace
}  // namespace millrace
