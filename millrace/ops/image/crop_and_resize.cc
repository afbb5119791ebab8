// CropAndResize: parts of images, each resized to the same size; and its gradients.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

struct CropBoxes {
  const float* corners = nullptr;  // y1, x1, y2, x2 of each, in parts of the image
  const int32_t* image = nullptr;
  int64_t count = 0;
};

StatusOr<CropBoxes> BoxesInput(const Tensor& boxes, const Tensor& box_ind, int64_t batch) {
  if (boxes.num_elements() == 0 && box_ind.num_elements() == 0) return CropBoxes();
  if (boxes.rank() != 2) return InvalidArgument("boxes must be 2-D", boxes.shape().ToString());
  if (boxes.dim(1) != 4) return InvalidArgument("boxes must have 4 columns", boxes.shape().ToString());
  if (box_ind.rank() != 1) return InvalidArgument("box_index must be 1-D", box_ind.shape().ToString());
  if (box_ind.dim(0) != boxes.dim(0)) {
    return InvalidArgument("box_index has incompatible shape: ", box_ind.shape().ToString(), " for boxes of ",
                           boxes.shape().ToString());
  }
  for (const int32_t image : box_ind.flat<int32_t>()) {
    if (image < 0 || image >= batch) return OutOfRange("box_index has values outside [0, batch_size)");
  }
  return CropBoxes{boxes.data<float>(), box_ind.data<int32_t>(), boxes.dim(0)};
}

// How the positions of a crop map to those of one dimension of the image.
struct CropSpan {
  float low, high, scale;
  int64_t image, crop;

  CropSpan(float low, float high, int64_t image, int64_t crop)
      : low(low), high(high), scale(0), image(image), crop(crop) {
    if (crop > 1) scale = (high - low) * static_cast<float>(image - 1) / static_cast<float>(crop - 1);
  }
  float At(int64_t i) const {
    const auto last = static_cast<float>(image - 1);
    return crop > 1 ? low * last + static_cast<float>(i) * scale : 0.5f * (low + high) * last;
  }
  bool IsOutside(float at) const { return !(at >= 0 && at <= static_cast<float>(image - 1)); }
};

// The two neighbours of a position, and how much the second counts.
struct Between {
  int64_t a, b;
  float part;
  explicit Between(float at)
      : a(static_cast<int64_t>(std::floor(at))), b(static_cast<int64_t>(std::ceil(at))), part(at - std::floor(at)) {}
};

bool IsNearest(KernelInit& init) {
  std::string method;
  init.Attr("method", &method);
  return method == "nearest";
}

class CropAndResizeKernel : public Kernel {
 public:
  explicit CropAndResizeKernel(KernelInit& init) : nearest_(IsNearest(init)) {
    init.Attr("extrapolation_value", &outside_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &images = ctx.input(0), &size = ctx.input(3);
    if (images.rank() != 4) return InvalidArgument("input image must be 4-D", images.shape().ToString());
    if (size.rank() != 1) return InvalidArgument("crop_size must be 1-D", size.shape().ToString());
    if (size.dim(0) != 2) return InvalidArgument("crop_size must have two elements", size.shape().ToString());
    const int64_t height = size.data<int32_t>()[0], width = size.data<int32_t>()[1], channels = images.dim(3);
    if (height <= 0 || width <= 0) return InvalidArgument("crop dimensions must be positive");
    const int64_t count = ctx.input(1).rank() == 2 ? ctx.input(1).dim(0) : 0;
    MR_RETURN_IF_ERROR(Shape::Make({count, height, width, channels}).status());
    for (const float corner : ctx.input(1).flat<float>()) {
      if (!std::isfinite(corner)) return InvalidArgument("Boxes contains at least one element that is not finite");
    }
    MR_ASSIGN_OR_RETURN(const CropBoxes boxes, BoxesInput(ctx.input(1), ctx.input(2), images.dim(0)));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({boxes.count, height, width, channels}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    if (images.dim(1) == 0 || images.dim(2) == 0) return InvalidArgument("image dimensions must be positive");
    const ImageFloats in(images);
    ctx.ParallelFor(boxes.count * height, std::max<int64_t>(1, 8192 / (width * channels)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = begin; r < end; ++r) {
                        const int64_t b = r / height;
                        const float* box = boxes.corners + b * 4;
                        const CropSpan rows(box[0], box[2], images.dim(1), height);
                        const CropSpan columns(box[1], box[3], images.dim(2), width);
                        Row(in.data() + boxes.image[b] * images.shape().Product(1, 4), channels, rows.At(r % height),
                            rows, columns, out->data<float>() + r * width * channels);
                      }
                    });
    return absl::OkStatus();
  }

 private:
  void Row(const float* image, int64_t channels, float y, const CropSpan& rows, const CropSpan& columns,
           float* out) const {
    if (rows.IsOutside(y)) {
      std::fill(out, out + columns.crop * channels, outside_);
      return;
    }
    const int64_t row = columns.image * channels;
    for (int64_t i = 0; i < columns.crop; ++i, out += channels) {
      const float x = columns.At(i);
      if (columns.IsOutside(x)) {
        std::fill(out, out + channels, outside_);
      } else if (nearest_) {
        const float* from = image + std::lround(y) * row + std::lround(x) * channels;
        std::copy(from, from + channels, out);
      } else {
        const Between v(y), h(x);
        for (int64_t c = 0; c < channels; ++c) {
          const auto at = [&](int64_t p, int64_t q) { return image[p * row + q * channels + c]; };
          const float top = at(v.a, h.a) + (at(v.a, h.b) - at(v.a, h.a)) * h.part;
          const float bottom = at(v.b, h.a) + (at(v.b, h.b) - at(v.b, h.a)) * h.part;
          out[c] = top + (bottom - top) * v.part;
        }
      }
    }
  }

  const bool nearest_;
  float outside_ = 0;
};

// Calls fn(box, image, y, x, place of y, place of x, gradient) for each pixel of the crops that is within its image.
template <typename Fn>
void ForEachCropped(const CropBoxes& boxes, const Tensor& grads, int64_t image_height, int64_t image_width, Fn fn) {
  const int64_t height = grads.dim(1), width = grads.dim(2), channels = grads.dim(3);
  for (int64_t b = 0; b < boxes.count; ++b) {
    const float* box = boxes.corners + b * 4;
    const CropSpan rows(box[0], box[2], image_height, height), columns(box[1], box[3], image_width, width);
    for (int64_t i = 0; i < height; ++i) {
      const float y = rows.At(i);
      if (rows.IsOutside(y)) continue;
      for (int64_t j = 0; j < width; ++j) {
        const float x = columns.At(j);
        if (columns.IsOutside(x)) continue;
        fn(b, boxes.image[b], i, j, y, x, grads.data<float>() + ((b * height + i) * width + j) * channels);
      }
    }
  }
}

Status CheckCropGrads(const Tensor& grads, const CropBoxes& boxes) {
  if (grads.rank() != 4) return InvalidArgument("grads image must be 4-D", grads.shape().ToString());
  if (grads.dim(0) != boxes.count) return InvalidArgument("boxes and grads have incompatible shape");
  if (grads.dim(1) <= 0 || grads.dim(2) <= 0) return InvalidArgument("grads dimensions must be positive");
  return absl::OkStatus();
}

class CropGradImageKernel : public Kernel {
 public:
  explicit CropGradImageKernel(KernelInit& init) : nearest_(IsNearest(init)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &size = ctx.input(3);
    if (size.rank() != 1) return InvalidArgument("image_size must be 1-D", size.shape().ToString());
    if (size.dim(0) != 4) return InvalidArgument("image_size must have 4 elements", size.shape().ToString());
    const int32_t* s = size.data<int32_t>();
    if (s[1] <= 0 || s[2] <= 0) return InvalidArgument("image dimensions must be positive");
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({s[0], s[1], s[2], s[3]}));
    MR_ASSIGN_OR_RETURN(const CropBoxes boxes, BoxesInput(ctx.input(1), ctx.input(2), s[0]));
    MR_RETURN_IF_ERROR(CheckCropGrads(grads, boxes));
    if (grads.dim(3) != s[3]) return InvalidArgument("image_size and grads are incompatible");
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    std::vector<float> sums(static_cast<size_t>(shape.num_elements()));
    const int64_t channels = s[3], row = s[2] * channels;
    ForEachCropped(boxes, grads, s[1], s[2],
                   [&](int64_t, int64_t image, int64_t, int64_t, float y, float x, const float* grad) {
                     float* to = sums.data() + image * s[1] * row;
                     if (nearest_) {
                       to += std::lround(y) * row + std::lround(x) * channels;
                       for (int64_t c = 0; c < channels; ++c) to[c] += grad[c];
                       return;
                     }
                     const Between v(y), h(x);
                     for (int64_t c = 0; c < channels; ++c) {
                       const float top = (1 - v.part) * grad[c], bottom = v.part * grad[c];
                       to[v.a * row + h.a * channels + c] += (1 - h.part) * top;
                       to[v.a * row + h.b * channels + c] += h.part * top;
                       to[v.b * row + h.a * channels + c] += (1 - h.part) * bottom;
                       to[v.b * row + h.b * channels + c] += h.part * bottom;
                     }
                   });
    StoreFloats(sums.data(), out);
    return absl::OkStatus();
  }

 private:
  const bool nearest_;
};

class CropGradBoxesKernel : public Kernel {
 public:
  explicit CropGradBoxesKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &images = ctx.input(1), &corners = ctx.input(2);
    if (images.rank() != 4) return InvalidArgument("input image must be 4-D", images.shape().ToString());
    MR_ASSIGN_OR_RETURN(const CropBoxes boxes, BoxesInput(corners, ctx.input(3), images.dim(0)));
    MR_RETURN_IF_ERROR(CheckCropGrads(grads, boxes));
    if (grads.dim(3) != images.dim(3)) return InvalidArgument("image, grads depth differ");
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, corners.shape()));
    if (out->num_elements() == 0) return absl::OkStatus();
    std::memset(out->raw_data(), 0, out->TotalBytes());
    const ImageFloats in(images);
    const int64_t height = images.dim(1), width = images.dim(2), channels = images.dim(3), row = width * channels;
    ForEachCropped(boxes, grads, height, width,
                   [&](int64_t b, int64_t image, int64_t i, int64_t j, float y, float x, const float* grad) {
                     const float* pixels = in.data() + image * height * row;
                     const Between v(y), h(x);
                     float dy = 0, dx = 0;
                     for (int64_t c = 0; c < channels; ++c) {
                       const auto at = [&](int64_t p, int64_t q) { return pixels[p * row + q * channels + c]; };
                       const float ta = at(v.a, h.a), tb = at(v.a, h.b), ba = at(v.b, h.a), bb = at(v.b, h.b);
                       dy += ((1 - h.part) * (ba - ta) + h.part * (bb - tb)) * grad[c];
                       dx += ((1 - v.part) * (tb - ta) + v.part * (bb - ba)) * grad[c];
                     }
                     float* to = out->data<float>() + b * 4;
                     AddSpan(dy, i, height, grads.dim(1), &to[0], &to[2]);
                     AddSpan(dx, j, width, grads.dim(2), &to[1], &to[3]);
                   });
    return absl::OkStatus();
  }

 private:
  // Moves the gradient of a position to those of the two ends of its span.
  static void AddSpan(float grad, int64_t i, int64_t image, int64_t crop, float* low, float* high) {
    const auto last = static_cast<float>(image - 1);
    if (crop > 1) {
      const float share = static_cast<float>(i) * last / static_cast<float>(crop - 1);
      *low += grad * (last - share);
      *high += grad * share;
    } else {
      *low += grad * 0.5f * last;
      *high += grad * 0.5f * last;
    }
  }
};

Status CropShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape images, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(1, 2));
  MR_RETURN_IF_ERROR(c.WithRank(2, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(3, 1).status());
  std::vector<int64_t> size;
  const bool known = c.ConstantInts(3, &size) && size.size() == 2 && size[0] >= 0 && size[1] >= 0;
  c.set_output(0, PartialShape({boxes.dim(0), known ? size[0] : -1, known ? size[1] : -1, images.dim(3)}));
  return absl::OkStatus();
}

Status CropGradImageShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(3));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

Status CropGradBoxesShape(ShapeContext& c) {
  c.set_output(0, c.input(2));
  return absl::OkStatus();
}

Status CropGradient(GradientContext& c) {
  const Endpoint grad = c.grad();
  if (IsFloating(BaseType(c.input(0).dtype()))) {
    AttrList attrs = c.CopyAttrs({"method"});
    attrs.push_back({"T", BaseType(c.input(0).dtype())});
    c.set_input_grad(0, c.Op("CropAndResizeGradImage", {grad, c.input(1), c.input(2), c.Shape(c.input(0))}, attrs));
  }
  // TensorFlow too uses the bilinear gradient for the boxes of both methods.
  c.set_input_grad(1, c.Op("CropAndResizeGradBoxes", {grad, c.input(0), c.input(1), c.input(2)}));
  return absl::OkStatus();
}

MILLRACE_OP(CropAndResize)
    .Summary("Crops boxes out of images and resizes them to one size.")
    .Input("image: T")
    .Input("boxes: float")
    .Input("box_ind: int32")
    .Input("crop_size: int32")
    .Output("crops: float")
    .Attr("T: {uint8, uint16, int8, int16, int32, int64, half, float, double}")
    .Attr("method: {'bilinear', 'nearest'} = 'bilinear'")
    .Attr("extrapolation_value: float = 0")
    .Shape(CropShape)
    .Gradient(CropGradient);
MILLRACE_OP(CropAndResizeGradImage)
    .Summary("The gradient of CropAndResize with respect to the images.")
    .Input("grads: float")
    .Input("boxes: float")
    .Input("box_ind: int32")
    .Input("image_size: int32")
    .Output("output: T")
    .Attr("T: {float, half, double}")
    .Attr("method: {'bilinear', 'nearest'} = 'bilinear'")
    .Shape(CropGradImageShape)
    .NotDifferentiable();
MILLRACE_OP(CropAndResizeGradBoxes)
    .Summary("The gradient of CropAndResize with respect to the boxes.")
    .Input("grads: float")
    .Input("image: T")
    .Input("boxes: float")
    .Input("box_ind: int32")
    .Output("output: float")
    .Attr("T: {uint8, uint16, int8, int16, int32, int64, half, float, double}")
    .Attr("method: {'bilinear'} = 'bilinear'")
    .Shape(CropGradBoxesShape)
    .NotDifferentiable();
MILLRACE_KERNEL(CropAndResize, kCpu, CropAndResizeKernel);
MILLRACE_KERNEL(CropAndResizeGradImage, kCpu, CropGradImageKernel);
MILLRACE_KERNEL(CropAndResizeGradBoxes, kCpu, CropGradBoxesKernel);

}  // namespace
}  // namespace millrace
