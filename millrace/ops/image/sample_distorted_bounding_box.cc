// SampleDistortedBoundingBox: a random part of an image that shows enough of one of the given boxes.
#include <algorithm>
#include <cmath>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

struct PixelBox {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
  float Area() const { return static_cast<float>((right - left) * (bottom - top)); }
  bool IsEmpty() const { return left >= right || top >= bottom; }
  PixelBox Intersect(const PixelBox& o) const {
    const PixelBox both{std::max(left, o.left), std::max(top, o.top), std::min(right, o.right),
                        std::min(bottom, o.bottom)};
    return both.IsEmpty() ? PixelBox() : both;
  }
};

struct CropRange {
  float low = 0, high = 0;
};

// A random crop of that aspect ratio whose area is in the range (parts of the image). Rounds as TensorFlow does, so
// that the same numbers give the same crop. False if there is none.
bool RandomCropOf(int64_t width, int64_t height, CropRange area, float aspect, random::SingleNumbers& numbers,
                  PixelBox* crop) {
  if (area.high <= 0 || aspect <= 0 || width <= 0 || height <= 0 || area.low > area.high) return false;
  const float least = area.low * static_cast<float>(width) * static_cast<float>(height);
  const float most = area.high * static_cast<float>(width) * static_cast<float>(height);
  const auto width_for = [&](int64_t h) { return static_cast<int64_t>(std::lrintf(static_cast<float>(h) * aspect)); };
  auto h = static_cast<int64_t>(std::lrintf(std::sqrt(least / aspect)));
  auto max_h = static_cast<int64_t>(std::lrintf(std::sqrt(most / aspect)));
  if (width_for(max_h) > width) {
    constexpr float kEps = 0.0000001f;
    max_h = static_cast<int64_t>((static_cast<double>(width) + 0.5 - kEps) / aspect);
    if (width_for(max_h) > width) --max_h;
  }
  max_h = std::min(max_h, height);
  h = std::min(h, max_h);
  if (h < max_h) h += numbers.Below(static_cast<uint32_t>(max_h - h + 1));
  int64_t w = width_for(h);
  if (static_cast<float>(w * h) < least) w = width_for(++h);
  if (static_cast<float>(w * h) > most) w = width_for(--h);
  const auto got = static_cast<float>(w * h);
  if (got < least || got > most || w > width || h > height || w <= 0 || h <= 0) return false;
  const int64_t y = h < height ? numbers.Below(static_cast<uint32_t>(height - h)) : 0;
  const int64_t x = w < width ? numbers.Below(static_cast<uint32_t>(width - w)) : 0;
  *crop = {x, y, x + w, y + h};
  return true;
}

bool ShowsEnough(const PixelBox& crop, float min_covered, const std::vector<PixelBox>& boxes) {
  if (crop.Area() < 1.0f) return false;
  return std::any_of(boxes.begin(), boxes.end(), [&](const PixelBox& box) {
    return box.Area() >= 1.0f && crop.Intersect(box).Area() >= min_covered * box.Area();
  });
}

class SampleBoxKernel : public Kernel {
 public:
  SampleBoxKernel(KernelInit& init, random::SourceKind kind) : source_(init, kind) {
    std::vector<float> aspect, area;
    init.Attr("aspect_ratio_range", &aspect);
    init.Attr("area_range", &area);
    init.Attr("max_attempts", &attempts_);
    init.Attr("use_image_if_no_bounding_boxes", &whole_if_none_);
    if (init.node().is_type("SampleDistortedBoundingBox")) {
      init.Attr("min_object_covered", &min_covered_);
      CheckCovered(init, min_covered_);
    }
    if (attempts_ <= 0) init.Fail(InvalidArgument("Max attempts must be positive: ", attempts_));
    if (aspect.size() != 2 || aspect[0] <= 0 || aspect[1] <= 0) {
      init.Fail(InvalidArgument("Aspect ratio range must be two positive values"));
      return;
    }
    if (area.size() != 2 || area[0] <= 0 || area[1] <= 0 || area[0] > 1 || area[1] > 1) {
      init.Fail(InvalidArgument("Area range must be two values in (0, 1]"));
      return;
    }
    aspect_ = {aspect[0], aspect[1]};
    area_ = {area[0], area[1]};
  }

  Status Compute(KernelContext& ctx) override {
    int64_t height = 0, width = 0;
    MR_RETURN_IF_ERROR(ReadSize(ctx.input(0), &height, &width));
    float min_covered = min_covered_;
    if (ctx.num_inputs() > 2) {
      if (ctx.input(2).rank() != 0) {
        return InvalidArgument("min_object_covered must be 0-D, got shape ", ctx.input(2).shape().ToString());
      }
      min_covered = ctx.input(2).scalar<float>();
      if (min_covered < 0) return InvalidArgument("Min object covered must be non-negative: ", min_covered);
    }
    MR_ASSIGN_OR_RETURN(const std::vector<PixelBox> boxes, ReadBoxes(ctx.input(1), height, width));
    MR_ASSIGN_OR_RETURN(const Philox stream, source_.Take(ctx, 3, static_cast<uint64_t>(attempts_)));
    random::SingleNumbers numbers(stream);
    PixelBox crop{0, 0, width, height};
    for (int i = 0; i < attempts_; ++i) {
      const float aspect = random::ToFloat(numbers()) * (aspect_.high - aspect_.low) + aspect_.low;
      PixelBox tried;
      if (!RandomCropOf(width, height, area_, aspect, numbers, &tried)) continue;
      if (!ShowsEnough(tried, min_covered, boxes)) continue;
      crop = tried;
      break;
    }
    return Give(ctx, crop, height, width);
  }

 private:
  static void CheckCovered(KernelInit& init, float min_covered) {
    if (min_covered < 0) init.Fail(InvalidArgument("Min object covered must be non-negative: ", min_covered));
  }

  static Status ReadSize(const Tensor& size, int64_t* height, int64_t* width) {
    if (size.rank() != 1) return InvalidArgument("image_size must be 1-dimensional: ", size.shape().ToString());
    if (size.dim(0) != 3) return InvalidArgument("image_size must contain 3 elements: ", size.shape().ToString());
    DispatchType(SignedAndBytes{}, size.dtype(), [&](auto tag) {
      const auto* s = size.data<typename decltype(tag)::type>();
      *height = s[0];
      *width = s[1];
    });
    if (*height <= 0) return InvalidArgument("image height cannot be <= 0: ", *height);
    if (*width <= 0) return InvalidArgument("image width cannot be <= 0: ", *width);
    return absl::OkStatus();
  }

  StatusOr<std::vector<PixelBox>> ReadBoxes(const Tensor& t, int64_t height, int64_t width) const {
    if (t.rank() != 3)
      return InvalidArgument("input boxes must be 3-dimensional [batch, num_boxes, coords]: ", t.shape().ToString());
    if (t.dim(2) != 4)
      return InvalidArgument("bounding boxes must have shape [4] or [*, 4], got ", t.shape().ToString());
    std::vector<PixelBox> boxes;
    const float* c = t.data<float>();
    for (int64_t i = 0; i < t.dim(0) * t.dim(1); ++i, c += 4) {
      for (int k = 0; k < 4; ++k) {
        if (!(c[k] >= 0 && c[k] <= 1)) {
          return InvalidArgument("All bounding box coordinates must be in [0.0, 1.0]: ", c[k]);
        }
      }
      const auto w = static_cast<float>(width), h = static_cast<float>(height);
      boxes.push_back({static_cast<int64_t>(c[1] * w), static_cast<int64_t>(c[0] * h), static_cast<int64_t>(c[3] * w),
                       static_cast<int64_t>(c[2] * h)});
    }
    if (!boxes.empty()) return boxes;
    if (!whole_if_none_) {
      return InvalidArgument(
          "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to not "
          "provide any bounding boxes.");
    }
    boxes.push_back({0, 0, width, height});
    return boxes;
  }

  Status Give(KernelContext& ctx, const PixelBox& crop, int64_t height, int64_t width) const {
    MR_ASSIGN_OR_RETURN(Tensor * begin, ctx.AllocateOutput(0, Shape({3})));
    MR_ASSIGN_OR_RETURN(Tensor * size, ctx.AllocateOutput(1, Shape({3})));
    MR_ASSIGN_OR_RETURN(Tensor * box, ctx.AllocateOutput(2, Shape({1, 1, 4})));
    DispatchType(SignedAndBytes{}, begin->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t from[] = {crop.top, crop.left, 0}, many[] = {crop.bottom - crop.top, crop.right - crop.left, -1};
      for (int i = 0; i < 3; ++i) {
        begin->data<T>()[i] = static_cast<T>(from[i]);
        size->data<T>()[i] = static_cast<T>(many[i]);
      }
    });
    const auto w = static_cast<float>(width), h = static_cast<float>(height);
    float* c = box->data<float>();
    c[0] = static_cast<float>(crop.top) / h, c[1] = static_cast<float>(crop.left) / w;
    c[2] = static_cast<float>(crop.bottom) / h, c[3] = static_cast<float>(crop.right) / w;
    return absl::OkStatus();
  }

  using SignedAndBytes = Types<uint8_t, int8_t, int16_t, int32_t, int64_t>;

  random::RandomSource source_;
  CropRange aspect_, area_;
  int attempts_ = 100;
  bool whole_if_none_ = false;
  float min_covered_ = 0.1f;
};

class StatefulSampleBoxKernel : public SampleBoxKernel {
 public:
  explicit StatefulSampleBoxKernel(KernelInit& init) : SampleBoxKernel(init, random::SourceKind::kSeedAttrs) {}
};
class StatelessSampleBoxKernel : public SampleBoxKernel {
 public:
  explicit StatelessSampleBoxKernel(KernelInit& init) : SampleBoxKernel(init, random::SourceKind::kSeedInput) {}
};

Status SampleBoxShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 3).status());
  c.set_output(0, PartialShape({3}));
  c.set_output(1, PartialShape({3}));
  c.set_output(2, PartialShape({1, 1, 4}));
  return absl::OkStatus();
}

MILLRACE_OP(SampleDistortedBoundingBox)
    .Summary("A random part of an image that shows enough of one of the boxes.")
    .Input("image_size: T")
    .Input("bounding_boxes: float")
    .Output("begin: T")
    .Output("size: T")
    .Output("bboxes: float")
    .Attr("T: {uint8, int8, int16, int32, int64}")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("min_object_covered: float = 0.1")
    .Attr("aspect_ratio_range: list(float) = [0.75, 1.33]")
    .Attr("area_range: list(float) = [0.05, 1.0]")
    .Attr("max_attempts: int = 100")
    .Attr("use_image_if_no_bounding_boxes: bool = false")
    .Stateful()
    .Shape(SampleBoxShape)
    .NotDifferentiable();
MILLRACE_OP(SampleDistortedBoundingBoxV2)
    .Summary("A random part of an image that shows enough of one of the boxes; how much is an input.")
    .Input("image_size: T")
    .Input("bounding_boxes: float")
    .Input("min_object_covered: float")
    .Output("begin: T")
    .Output("size: T")
    .Output("bboxes: float")
    .Attr("T: {uint8, int8, int16, int32, int64}")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("aspect_ratio_range: list(float) = [0.75, 1.33]")
    .Attr("area_range: list(float) = [0.05, 1.0]")
    .Attr("max_attempts: int = 100")
    .Attr("use_image_if_no_bounding_boxes: bool = false")
    .Stateful()
    .Shape(SampleBoxShape)
    .NotDifferentiable();
MILLRACE_OP(StatelessSampleDistortedBoundingBox)
    .Summary("A part of an image that shows enough of one of the boxes, determined by the seed.")
    .Input("image_size: T")
    .Input("bounding_boxes: float")
    .Input("min_object_covered: float")
    .Input("seed: Tseed")
    .Output("begin: T")
    .Output("size: T")
    .Output("bboxes: float")
    .Attr("T: {uint8, int8, int16, int32, int64}")
    .Attr("Tseed: {int32, int64}")
    .Attr("aspect_ratio_range: list(float) = [0.75, 1.33]")
    .Attr("area_range: list(float) = [0.05, 1.0]")
    .Attr("max_attempts: int = 100")
    .Attr("use_image_if_no_bounding_boxes: bool = false")
    .Shape(SampleBoxShape)
    .NotDifferentiable();
MILLRACE_KERNEL(SampleDistortedBoundingBox, kCpu, StatefulSampleBoxKernel);
MILLRACE_KERNEL(SampleDistortedBoundingBoxV2, kCpu, StatefulSampleBoxKernel);
MILLRACE_KERNEL(StatelessSampleDistortedBoundingBox, kCpu, StatelessSampleBoxKernel);

}  // namespace
}  // namespace millrace
