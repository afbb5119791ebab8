// RandomCrop, NonDeterministicInts.
#include <numeric>
#include <random>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"

namespace millrace::random {
namespace {

class RandomCropKernel : public Kernel {
 public:
  explicit RandomCropKernel(KernelInit& init) : source_(init, SourceKind::kSeedAttrs) {
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &image = ctx.input(0), &size = ctx.input(1);
    if (image.rank() != 3)
      return InvalidArgument("input must be 3-dimensional, but has shape ", image.shape().ToString());
    if (size.rank() != 1 || size.dim(0) != 2) {
      return InvalidArgument("shape must be a vector of size 2: ", size.shape().ToString());
    }
    const int64_t height = size.data<int64_t>()[0], width = size.data<int64_t>()[1];
    if (height < 0 || width < 0)
      return InvalidArgument("a crop's height and width must not be negative: ", height, ", ", width);
    if (height > image.dim(0)) {
      return FailedPrecondition("height must be >= target_height: height = ", image.dim(0),
                                ", target_height = ", height);
    }
    if (width > image.dim(1)) {
      return FailedPrecondition("width must be >= target_width: width = ", image.dim(1), ", target_width = ", width);
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({height, width, image.dim(2)})));
    if (height == image.dim(0) && width == image.dim(1)) {
      ctx.SetOutput(0, image);
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(const Philox stream, source_.Take(ctx, 2, 1));
    SingleNumbers numbers(stream);
    int64_t top = 0, left = 0;
    if (height < image.dim(0)) top = numbers.Below(static_cast<uint32_t>(image.dim(0) - height + 1));
    if (width < image.dim(1)) left = numbers.Below(static_cast<uint32_t>(image.dim(1) - width + 1));
    const size_t pixel = static_cast<size_t>(image.dim(2)) * SizeOf(image.dtype());
    const char* from = static_cast<const char*>(image.raw_data());
    char* to = static_cast<char*>(out->raw_data());
    for (int64_t y = 0; y < height; ++y) {
      std::copy_n(from + ((top + y) * image.dim(1) + left) * pixel, width * pixel, to + y * width * pixel);
    }
    return absl::OkStatus();
  }

 private:
  RandomSource source_;
};

Status RandomCropShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape image, c.WithRank(0, 3));
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  std::vector<int64_t> size;
  const bool known = c.ConstantInts(1, &size) && size.size() == 2;
  c.set_output(
      0, PartialShape({known && size[0] >= 0 ? size[0] : -1, known && size[1] >= 0 ? size[1] : -1, image.dim(2)}));
  return absl::OkStatus();
}

class NonDeterministicIntsKernel : public Kernel {
 public:
  explicit NonDeterministicIntsKernel(KernelInit& init) {
    if (!DispatchType(OutTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
    if (!DispatchType(ShapeTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& given = ctx.input(0);
    if (given.rank() != 1 || given.dim(0) > Shape::kMaxRank) {
      return InvalidArgument("shape must be a vector, but has shape ", given.shape().ToString());
    }
    Shape::Dims dims;
    DispatchType(ShapeTypes{}, given.dtype(), [&](auto tag) {
      for (auto size : given.flat<typename decltype(tag)::type>()) dims.push_back(static_cast<int64_t>(size));
    });
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    std::random_device device;
    Philox numbers((uint64_t{device()} << 32) | device(), (uint64_t{device()} << 32) | device());
    char* to = static_cast<char*>(out->raw_data());
    for (size_t left = out->TotalBytes(); left > 0;) {
      const Philox::Group group = numbers();
      const size_t n = std::min(left, sizeof(group));
      std::copy_n(reinterpret_cast<const char*>(group.data()), n, to);
      to += n;
      left -= n;
    }
    return absl::OkStatus();
  }

 private:
  using OutTypes = Types<int32_t, int64_t, uint32_t, uint64_t>;
  using ShapeTypes = Types<int32_t, int64_t, uint32_t, uint64_t>;
};

}  // namespace

MILLRACE_OP(RandomCrop)
    .Input("image: T")
    .Input("size: int64")
    .Output("output: T")
    .Attr("T: {uint8, int8, int16, int32, int64, float, double}")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Stateful()
    .Shape(RandomCropShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Crops an image at a random position.");
MILLRACE_OP(NonDeterministicInts)
    .Input("shape: shape_dtype")
    .Output("output: dtype")
    .Attr("dtype: type = DT_INT64")
    .Attr("shape_dtype: type = DT_INT64")
    .Stateful()
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Summary("Non-deterministic random integers.");

MILLRACE_KERNEL(RandomCrop, kCpu, RandomCropKernel);
MILLRACE_KERNEL(NonDeterministicInts, kCpu, NonDeterministicIntsKernel);

}  // namespace millrace::random
