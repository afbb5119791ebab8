#include "millrace/ops/nn/pooling.h"

#include <limits>

namespace millrace {
namespace {

// The number of elements read that is worth another thread.
constexpr double kGrainReads = 1 << 16;

StatusOr<std::vector<int64_t>> IntsOf(const Tensor& t, absl::string_view name) {
  if (t.rank() != 1) return InvalidArgument(name, " must be a vector, but has shape ", t.shape().ToString());
  const auto values = t.flat<int32_t>();
  return std::vector<int64_t>(values.begin(), values.end());
}

}  // namespace

StatusOr<PoolGeometry> MakePoolGeometry(const WindowAttrs& attrs, const Shape& input, Shape* output) {
  if (input.rank() != attrs.full_rank()) {
    return InvalidArgument("the input must have ", attrs.full_rank(), " dimensions, but has shape ", input.ToString());
  }
  PoolGeometry g;
  g.batch = input.dim(0);
  g.channels = input.dim(attrs.channel_axis());
  std::array<int64_t, 3> out = {1, 1, 1};
  for (int i = 0; i < attrs.rank; ++i) {
    const int s = attrs.slot(i);
    MR_ASSIGN_OR_RETURN(g.dim[s], attrs.Slide(s, input.dim(attrs.spatial_axis(i)), attrs.window[s]));
    out[s] = g.dim[s].out;
    if (g.dim[s].in == 0 && out[s] > 0) {
      return InvalidArgument("no pixels to pool in an input of shape ", input.ToString());
    }
    if (std::max(g.dim[s].pad_before, g.dim[s].pad_after) >= g.dim[s].window) {
      return InvalidArgument("paddings of ", g.dim[s].pad_before, " and ", g.dim[s].pad_after,
                             " must be smaller than the window of ", g.dim[s].window);
    }
  }
  MR_ASSIGN_OR_RETURN(*output, Shape::Make(LayoutShape(attrs, g.batch, out, g.channels).dims()));
  if (attrs.channels_first) {
    g.batch *= g.channels;
    g.channels = 1;
  }
  return g;
}

int64_t PoolGrain(const PoolGeometry& g) {
  const double reads = static_cast<double>(g.out_pixels()) * g.window_pixels() * g.channels;
  return std::max<int64_t>(1, static_cast<int64_t>(kGrainReads / std::max(reads, 1.0)));
}

int64_t PoolRowGrain(const PoolGeometry& g) {
  const double reads = static_cast<double>(g.dim[2].out) * g.window_pixels() * g.channels;
  return std::max<int64_t>(1, static_cast<int64_t>(kGrainReads / std::max(reads, 1.0)));
}

PoolWindow::PoolWindow(KernelInit& init) : from_inputs_(init.node().FindAttr("ksize") == nullptr) {
  StatusOr<WindowAttrs> attrs = WindowAttrs::FromNode(init.node());
  if (attrs.ok()) {
    attrs_ = *attrs;
  } else {
    init.Fail(attrs.status());
  }
}

StatusOr<WindowAttrs> PoolWindow::Get(KernelContext& ctx, int first_input) const {
  if (!from_inputs_) return attrs_;
  WindowAttrs attrs = attrs_;
  MR_ASSIGN_OR_RETURN(const auto ksize, IntsOf(ctx.input(first_input), "ksize"));
  MR_ASSIGN_OR_RETURN(const auto strides, IntsOf(ctx.input(first_input + 1), "strides"));
  MR_RETURN_IF_ERROR(attrs.SetWindow(ksize));
  MR_RETURN_IF_ERROR(attrs.SetStrides(strides));
  return attrs;
}

StatusOr<PoolGeometry> AvgPoolGradGeometry(KernelContext& ctx, const PoolWindow& window, Shape* result) {
  const Tensor& sizes = ctx.input(0);
  const Shape& dy = ctx.input(1).shape();
  if (sizes.rank() != 1) {
    return InvalidArgument("orig_input_shape must be a vector, but has shape ", sizes.shape().ToString());
  }
  const Shape::Dims dims(sizes.flat<int32_t>().begin(), sizes.flat<int32_t>().end());
  MR_ASSIGN_OR_RETURN(*result, Shape::Make(dims));
  MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, window.Get(ctx, 2));
  Shape out;
  MR_ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(attrs, *result, &out));
  if (dy == out) return g;
  return InvalidArgument("the gradient must have shape ", out.ToString(), " for an input of shape ", result->ToString(),
                         ", but has ", dy.ToString());
}

StatusOr<PoolGeometry> MaxPoolGradGeometry(KernelContext& ctx, const PoolWindow& window, bool second, Shape* result) {
  const Shape &x = ctx.input(0).shape(), &y = ctx.input(1).shape(), &grad = ctx.input(2).shape();
  MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, window.Get(ctx, 3));
  Shape out;
  MR_ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(attrs, x, &out));
  if (y != out) {
    return InvalidArgument("Expected orig_output shape to be ", out.ToString(), ", but got ", y.ToString());
  }
  if (grad != (second ? x : out)) {
    return InvalidArgument("Expected grad shape to be ", (second ? x : out).ToString(), ", but got ", grad.ToString());
  }
  if (g.in_pixels() > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("images of ", g.in_pixels(), " pixels are too large");
  }
  *result = second ? out : x;
  return g;
}

Status PoolShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(WindowAttrs attrs, WindowAttrs::FromNode(c.node()));
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, attrs.full_rank()));
  bool known = true;
  if (c.node().FindAttr("ksize") == nullptr) {
    std::vector<int64_t> ksize, strides;
    const int n = c.num_inputs();
    known = c.ConstantInts(n - 2, &ksize) && c.ConstantInts(n - 1, &strides);
    if (known) {
      MR_RETURN_IF_ERROR(attrs.SetWindow(ksize));
      MR_RETURN_IF_ERROR(attrs.SetStrides(strides));
    }
  }
  PartialShape out = PartialShape::UnknownOfRank(attrs.full_rank());
  out.set_dim(0, input.dim(0));
  out.set_dim(attrs.channel_axis(), input.dim(attrs.channel_axis()));
  for (int i = 0; known && i < attrs.rank; ++i) {
    const int s = attrs.slot(i), axis = attrs.spatial_axis(i);
    MR_ASSIGN_OR_RETURN(const WindowDim d, attrs.Slide(s, input.dim(axis), attrs.window[s]));
    out.set_dim(axis, d.out);
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, out);
  return absl::OkStatus();
}

Status PoolInputShape(ShapeContext& c) {
  c.set_output(0, c.input(0));
  return absl::OkStatus();
}

Status PoolSizesShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape sizes, c.ShapeFromInput(0));
  c.set_output(0, sizes);
  return absl::OkStatus();
}

}  // namespace millrace
