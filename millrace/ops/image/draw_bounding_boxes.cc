// DrawBoundingBoxes: frames around parts of images.
#include <algorithm>
#include <array>
#include <cstring>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

using BoxColor = std::array<float, 4>;

// TensorFlow's colours: yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia.
const std::vector<BoxColor>& DefaultBoxColors() {
  static const auto* const colors =
      new std::vector<BoxColor>{{1, 1, 0, 1},     {0, 0, 1, 1},   {1, 0, 0, 1},   {0, 1, 0, 1}, {0.5, 0, 0.5, 1},
                                {0.5, 0.5, 0, 1}, {0.5, 0, 0, 1}, {0, 0, 0.5, 1}, {0, 1, 1, 1}, {1, 0, 1, 1}};
  return *colors;
}

class DrawBoxesKernel : public Kernel {
 public:
  explicit DrawBoxesKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &images = ctx.input(0), &boxes = ctx.input(1);
    if (images.rank() != 4) return InvalidArgument("The rank of the images should be 4");
    if (boxes.rank() != 3) return InvalidArgument("The rank of the boxes tensor should be 3");
    if (images.dim(0) != boxes.dim(0)) return InvalidArgument("The batch sizes should be the same");
    if (boxes.dim(2) != 4)
      return InvalidArgument("A box has 4 corners, but boxes have shape ", boxes.shape().ToString());
    const int64_t depth = images.dim(3);
    if (depth != 4 && depth != 3 && depth != 1) {
      return InvalidArgument("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)");
    }
    MR_ASSIGN_OR_RETURN(const std::vector<BoxColor> colors, Colors(ctx, depth));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, images.shape()));
    const ImageFloats in(images);
    std::vector<float> canvas(in.data(), in.data() + images.num_elements());
    const int64_t size = images.shape().Product(1, 4);
    for (int64_t b = 0; b < images.dim(0) && size > 0; ++b) {
      for (int64_t k = 0; k < boxes.dim(1); ++k) {
        const BoxColor& color = colors[static_cast<size_t>(k) % colors.size()];
        Draw(boxes.data<float>() + (b * boxes.dim(1) + k) * 4, color, images, canvas.data() + b * size);
      }
    }
    StoreFloats(canvas.data(), out);
    return absl::OkStatus();
  }

 private:
  static StatusOr<std::vector<BoxColor>> Colors(const KernelContext& ctx, int64_t depth) {
    std::vector<BoxColor> colors = DefaultBoxColors();
    if (ctx.num_inputs() == 3 && ctx.input(2).num_elements() > 0) {
      const Tensor& given = ctx.input(2);
      if (given.rank() != 2) return InvalidArgument("colors must be a 2-D matrix", given.shape().ToString());
      if (given.dim(1) < depth) {
        return InvalidArgument("colors must have equal or more channels than the image provided: ", given.dim(1),
                               " vs. ", depth);
      }
      colors.assign(static_cast<size_t>(given.dim(0)), {0, 0, 0, 0});
      for (int64_t i = 0; i < given.dim(0); ++i) {
        std::copy_n(given.data<float>() + i * given.dim(1), std::min<int64_t>(4, given.dim(1)), colors[i].begin());
      }
    }
    if (depth == 1) {
      for (BoxColor& color : colors) color[0] = 1;
    }
    return colors;
  }

  static void Draw(const float* box, const BoxColor& color, const Tensor& images, float* canvas) {
    const int64_t height = images.dim(1), width = images.dim(2), depth = images.dim(3);
    const auto place = [](float part, int64_t size) {
      const float at = part * static_cast<float>(size - 1);
      return static_cast<int64_t>(std::clamp(at, -1e15f, 1e15f));
    };
    const int64_t top = place(box[0], height), left = place(box[1], width);
    const int64_t bottom = place(box[2], height), right = place(box[3], width);
    if (top > bottom || left > right) return;  // inverted
    if (top >= height || bottom < 0 || left >= width || right < 0) return;
    const int64_t first_row = std::max<int64_t>(top, 0), last_row = std::min(bottom, height - 1);
    const int64_t first_column = std::max<int64_t>(left, 0), last_column = std::min(right, width - 1);
    const auto paint = [&](int64_t y, int64_t x) {
      std::copy_n(color.begin(), depth, canvas + (y * width + x) * depth);
    };
    for (int64_t x = first_column; x <= last_column; ++x) {
      if (top >= 0) paint(top, x);
      if (bottom < height) paint(bottom, x);
    }
    for (int64_t y = first_row; y <= last_row; ++y) {
      if (left >= 0) paint(y, left);
      if (right < width) paint(y, right);
    }
  }
};

Status DrawBoxesShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(0, 3).status());
  return UnchangedShape(c);
}

MILLRACE_OP(DrawBoundingBoxes)
    .Summary("Draws boxes on images.")
    .Input("images: T")
    .Input("boxes: float")
    .Output("output: T")
    .Attr("T: {float, half} = DT_FLOAT")
    .Shape(DrawBoxesShape)
    .NotDifferentiable();
MILLRACE_OP(DrawBoundingBoxesV2)
    .Summary("Draws boxes on images, in given colours.")
    .Input("images: T")
    .Input("boxes: float")
    .Input("colors: float")
    .Output("output: T")
    .Attr("T: {float, half} = DT_FLOAT")
    .Shape(DrawBoxesShape)
    .NotDifferentiable();
MILLRACE_KERNEL(DrawBoundingBoxes, kCpu, DrawBoxesKernel);
MILLRACE_KERNEL(DrawBoundingBoxesV2, kCpu, DrawBoxesKernel);

}  // namespace
}  // namespace millrace
