// SpaceToDepth and DepthToSpace: move spatial blocks to the channels and back.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The positions of batch, height, width and channels.
struct Layout {
  int h, w, c;
};
StatusOr<Layout> LayoutOf(const Node& node) {
  MR_ASSIGN_OR_RETURN(const std::string format, node.Attr<std::string>("data_format"));
  if (format == "NHWC") return Layout{1, 2, 3};
  if (format == "NCHW") return Layout{2, 3, 1};
  return InvalidArgument("Only NHWC and NCHW data_format are supported on CPU. Got ", format);
}

StatusOr<PartialShape> DepthShape(const PartialShape& in, const Layout& at, int64_t block) {
  PartialShape out = in;
  for (int d : {at.h, at.w}) {
    if (in.dim(d) < 0) continue;
    if (in.dim(d) % block != 0) {
      return InvalidArgument("Image ", d == at.h ? "height " : "width ", in.dim(d),
                             " should be divisible by block_size: ", block);
    }
    out.set_dim(d, in.dim(d) / block);
  }
  int64_t depth = in.dim(at.c);
  if (depth >= 0 && (__builtin_mul_overflow(depth, block, &depth) || __builtin_mul_overflow(depth, block, &depth))) {
    return InvalidArgument("a depth of ", in.dim(at.c), " times ", block, " squared is too large");
  }
  out.set_dim(at.c, depth);
  return out;
}

StatusOr<PartialShape> SpaceShape(const PartialShape& in, const Layout& at, int64_t block) {
  PartialShape out = in;
  for (int d : {at.h, at.w}) {
    int64_t size = in.dim(d);
    if (size >= 0 && __builtin_mul_overflow(size, block, &size)) {
      return InvalidArgument("a dimension of ", in.dim(d), " times ", block, " is too large");
    }
    out.set_dim(d, size);
  }
  int64_t square;
  if (__builtin_mul_overflow(block, block, &square)) {
    return InvalidArgument("block_size ", block, " is too large");
  }
  if (in.dim(at.c) >= 0) {
    if (in.dim(at.c) % square != 0) {
      return InvalidArgument("Input depth dimension ", in.dim(at.c), " should be divisible by: ", square);
    }
    out.set_dim(at.c, in.dim(at.c) / square);
  }
  return out;
}

class SpaceDepthKernel : public Kernel {
 public:
  explicit SpaceDepthKernel(KernelInit& init) : to_depth_(init.node().is_type("SpaceToDepth")) {
    init.Attr("block_size", &block_);
    auto layout = LayoutOf(init.node());
    if (layout.ok()) {
      at_ = *layout;
    } else {
      init.Fail(layout.status());
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (input.rank() != 4) {
      return InvalidArgument("Input rank should be: 4 instead of: ", input.rank());
    }
    MR_ASSIGN_OR_RETURN(const PartialShape partial,
                        to_depth_ ? DepthShape(input.shape(), at_, block_) : SpaceShape(input.shape(), at_, block_));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(partial.dims()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const Shape& space = to_depth_ ? input.shape() : shape;
    const Shape& depth = to_depth_ ? shape : input.shape();
    const auto s = RowMajorStrides(space.dims());
    const auto d = RowMajorStrides(depth.dims());
    CopyBox box;
    const auto add = [&](int64_t size, int64_t in_space, int64_t in_depth) {
      to_depth_ ? box.Add(size, in_space, in_depth) : box.Add(size, in_depth, in_space);
    };
    // Position (i, j) of a block becomes channel (i * block + j) * channels + c.
    const int64_t channels = space.dim(at_.c);
    add(space.dim(0), s[0], d[0]);
    add(depth.dim(at_.h), s[at_.h] * block_, d[at_.h]);
    add(block_, s[at_.h], d[at_.c] * channels * block_);
    add(depth.dim(at_.w), s[at_.w] * block_, d[at_.w]);
    add(block_, s[at_.w], d[at_.c] * channels);
    add(channels, s[at_.c], d[at_.c]);
    return StridedCopy(ctx, std::move(box), input, 0, out, 0);
  }

 private:
  const bool to_depth_;
  int64_t block_ = 2;
  Layout at_{1, 2, 3};
};

Status SpaceDepthShape(ShapeContext& c) {
  auto layout = LayoutOf(c.node());
  if (!layout.ok()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const int64_t block, c.Attr<int64_t>("block_size"));
  MR_ASSIGN_OR_RETURN(PartialShape out, c.node().is_type("SpaceToDepth") ? DepthShape(in, *layout, block)
                                                                         : SpaceShape(in, *layout, block));
  c.set_output(0, out);
  return absl::OkStatus();
}

Status SpaceDepthGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op(c.node()->is_type("SpaceToDepth") ? "DepthToSpace" : "SpaceToDepth", {c.grad()},
                           {{"block_size", c.AttrOr<int64_t>("block_size", 2)},
                            {"data_format", c.AttrOr<std::string>("data_format", "NHWC")}}));
  return absl::OkStatus();
}

MILLRACE_OP(SpaceToDepth)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("block_size: int >= 2")
    .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
    .Shape(SpaceDepthShape)
    .Gradient(SpaceDepthGradient)
    .Summary("Moves 2-D blocks to the channels.");
MILLRACE_KERNEL(SpaceToDepth, kCpu, SpaceDepthKernel);
MILLRACE_KERNEL(SpaceToDepth, kCuda, SpaceDepthKernel);

MILLRACE_OP(DepthToSpace)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("block_size: int >= 2")
    .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
    .Shape(SpaceDepthShape)
    .Gradient(SpaceDepthGradient)
    .Summary("Moves blocks from the channels to 2-D space.");
MILLRACE_KERNEL(DepthToSpace, kCpu, SpaceDepthKernel);
MILLRACE_KERNEL(DepthToSpace, kCuda, SpaceDepthKernel);

}  // namespace
}  // namespace millrace
