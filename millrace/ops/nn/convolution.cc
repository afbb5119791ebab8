#include "millrace/ops/nn/convolution.h"

#include <cstring>

#include "absl/strings/match.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/ops/nn/batch_norm_passes.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The dimensions of `sizes`: a vector of integers.
StatusOr<Shape> ShapeFromTensor(const Tensor& sizes, absl::string_view name) {
  if (sizes.rank() != 1) {
    return InvalidArgument(name, " must be a vector, but has shape ", sizes.shape().ToString());
  }
  Shape::Dims dims;
  DispatchType(IndexTypes{}, sizes.dtype(), [&](auto tag) {
    for (auto v : sizes.flat<typename decltype(tag)::type>()) dims.push_back(v);
  });
  return Shape::Make(dims);
}

// BackpropInput may be given only the spatial sizes; the rest is derived from the other operands.
StatusOr<Shape> CompleteInputSizes(const WindowAttrs& attrs, const Shape& sizes, const Shape& filter, const Shape& dy) {
  if (sizes.rank() != attrs.rank || filter.rank() != attrs.full_rank() || dy.rank() < 1) return sizes;
  std::array<int64_t, 3> spatial = {1, 1, 1};
  for (int i = 0; i < attrs.rank; ++i) spatial[attrs.slot(i)] = sizes.dim(i);
  return LayoutShape(attrs, dy.dim(0), spatial, filter.dim(attrs.rank));
}

bool IsBackpropInput(absl::string_view type) { return absl::StrContains(type, "BackpropInput"); }
bool IsBackpropFilter(absl::string_view type) { return absl::StrContains(type, "BackpropFilter"); }

}  // namespace

StatusOr<ConvGeometry> MakeConvGeometry(const WindowAttrs& attrs, const Shape& input, const Shape& filter,
                                        bool depthwise) {
  const int rank = attrs.full_rank();
  if (input.rank() != rank || filter.rank() != rank) {
    return InvalidArgument("input and filter must have ", rank, " dimensions, but have shapes ", input.ToString(),
                           " and ", filter.ToString());
  }
  ConvGeometry g;
  g.rank = attrs.rank;
  g.channels_first = attrs.channels_first;
  g.batch = input.dim(0);
  g.in_channels = input.dim(attrs.channel_axis());
  const int64_t filter_in = filter.dim(rank - 2), filter_out = filter.dim(rank - 1);
  if (depthwise) {
    if (filter_in != g.in_channels) {
      return InvalidArgument("the input of shape ", input.ToString(), " has ", g.in_channels,
                             " channels, but the depthwise filter of shape ", filter.ToString(), " has ", filter_in);
    }
    g.groups = std::max<int64_t>(g.in_channels, 1);
    g.out_channels = filter_in * filter_out;
  } else {
    if (filter_in == 0 ? g.in_channels != 0 : g.in_channels % filter_in != 0) {
      return InvalidArgument("the input of shape ", input.ToString(), " has ", g.in_channels, " channels, which the ",
                             filter_in, " of the filter of shape ", filter.ToString(), " do not divide");
    }
    g.groups = filter_in == 0 ? 1 : std::max<int64_t>(g.in_channels / filter_in, 1);
    g.out_channels = filter_out;
    if (g.out_channels % g.groups != 0) {
      return InvalidArgument("the ", g.out_channels, " output channels of the filter of shape ", filter.ToString(),
                             " cannot be split into ", g.groups, " groups");
    }
  }
  for (int i = 0; i < attrs.rank; ++i) {
    const int s = attrs.slot(i);
    if (filter.dim(i) == 0) return InvalidArgument("the filter has no elements: ", filter.ToString());
    MR_ASSIGN_OR_RETURN(g.dim[s], attrs.Slide(s, input.dim(attrs.spatial_axis(i)), filter.dim(i)));
  }
  return g;
}

Shape ConvOutputShape(const WindowAttrs& attrs, const ConvGeometry& g) {
  return LayoutShape(attrs, g.batch, {g.dim[0].out, g.dim[1].out, g.dim[2].out}, g.out_channels);
}

Status RunConvolution(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const Tensor& a, const Tensor& b,
                      Tensor* c, const ConvEpilogue& epilogue) {
  if (c->num_elements() == 0) return absl::OkStatus();
  if (a.num_elements() == 0 || b.num_elements() == 0) {
    if (epilogue.addend != nullptr) {
      std::memmove(c->raw_data(), epilogue.addend, c->TotalBytes());
      return absl::OkStatus();
    }
    std::memset(c->raw_data(), 0, c->TotalBytes());
    if (epilogue.mean != nullptr) return conv::OutputMoments(ctx, g, c->data<float>(), epilogue);
    if (c->dtype() == DType::kFloat) conv::ApplyToImages(epilogue, g, 0, g.batch, c->data<float>());
    return absl::OkStatus();
  }
  switch (c->dtype()) {
    case DType::kFloat:
      return conv::RunFloat(ctx, kind, g, a.data<float>(), b.data<float>(), c->data<float>(), epilogue);
    case DType::kHalf:
    case DType::kBFloat16: {
      MR_ASSIGN_OR_RETURN(const Tensor wide_a, AsFloat(ctx, a));
      MR_ASSIGN_OR_RETURN(const Tensor wide_b, AsFloat(ctx, b));
      MR_ASSIGN_OR_RETURN(Tensor wide_c, ctx.AllocateTemp(DType::kFloat, c->shape()));
      MR_RETURN_IF_ERROR(
          conv::RunFloat(ctx, kind, g, wide_a.data<float>(), wide_b.data<float>(), wide_c.data<float>(), epilogue));
      FromFloat(ctx, wide_c, c);
      return absl::OkStatus();
    }
    case DType::kDouble:
      conv::RunLoops(ctx, kind, g, a.data<double>(), b.data<double>(), c->data<double>());
      return absl::OkStatus();
    case DType::kInt32:
      // Unsigned, so that integers wrap around.
      conv::RunLoops(ctx, kind, g, a.raw<const uint32_t>(), b.raw<const uint32_t>(), c->raw<uint32_t>());
      return absl::OkStatus();
    default:
      return Unimplemented("no convolution of ", DTypeName(c->dtype()));
  }
}

Status conv::OutputMoments(KernelContext& ctx, const ConvGeometry& g, const float* y, const ConvEpilogue& epilogue) {
  const int64_t pixels = g.out_pixels();
  const ChannelBlocks blocks{g.channels_first ? g.batch : g.batch * pixels, g.out_channels,
                             g.channels_first ? pixels : 1};
  return batch_norm::Moments(ctx, blocks, y, epilogue.mean, epilogue.variance);
}

void conv::ApplyToImages(const ConvEpilogue& epilogue, const ConvGeometry& g, int64_t begin, int64_t end, float* y) {
  if (epilogue.bias == nullptr) return;
  float* images = y + begin * g.out_pixels() * g.out_channels;
  if (g.channels_first) {
    epilogue.ApplyToPlanes(images, end - begin, g.out_pixels(), g.out_channels);
  } else {
    epilogue.Apply(images, (end - begin) * g.out_pixels(), g.out_channels);
  }
}

ConvOp::ConvOp(KernelInit& init) {
  const std::string& type = init.node().type();
  depthwise_ = absl::StartsWith(type, "Depthwise");
  if (IsBackpropInput(type)) kind_ = ConvKind::kBackwardInput;
  if (IsBackpropFilter(type)) kind_ = ConvKind::kBackwardFilter;
  sizes_are_tensors_ = type == "Conv3DBackpropInput" || type == "Conv3DBackpropFilter";
  StatusOr<WindowAttrs> attrs = WindowAttrs::FromNode(init.node());
  if (attrs.ok()) {
    attrs_ = *attrs;
  } else {
    init.Fail(attrs.status());
  }
}

StatusOr<ConvOp::Call> ConvOp::Get(KernelContext& ctx) const {
  Shape input = ctx.input(0).shape(), filter = ctx.input(1).shape();
  if (kind_ == ConvKind::kBackwardInput && !sizes_are_tensors_) {
    MR_ASSIGN_OR_RETURN(const Shape sizes, ShapeFromTensor(ctx.input(0), "input_sizes"));
    MR_ASSIGN_OR_RETURN(input, CompleteInputSizes(attrs_, sizes, filter, ctx.input(2).shape()));
  } else if (kind_ == ConvKind::kBackwardFilter && !sizes_are_tensors_) {
    MR_ASSIGN_OR_RETURN(filter, ShapeFromTensor(ctx.input(1), "filter_sizes"));
  }
  Call call;
  MR_ASSIGN_OR_RETURN(call.geometry, MakeConvGeometry(attrs_, input, filter, depthwise_));
  MR_ASSIGN_OR_RETURN(const Shape output, Shape::Make(ConvOutputShape(attrs_, call.geometry).dims()));
  if (kind_ != ConvKind::kForward && ctx.input(2).shape() != output) {
    return InvalidArgument("out_backprop must have shape ", output.ToString(), " for an input of shape ",
                           input.ToString(), " and a filter of shape ", filter.ToString(), ", but has ",
                           ctx.input(2).shape().ToString());
  }
  call.a = &ctx.input(kind_ == ConvKind::kBackwardInput ? 1 : 0);
  call.b = &ctx.input(kind_ == ConvKind::kForward ? 1 : 2);
  call.result = kind_ == ConvKind::kForward ? output : kind_ == ConvKind::kBackwardInput ? input : filter;
  return call;
}

ConvKernel::ConvKernel(KernelInit& init) : op_(init), has_addend_(init.node().is_type("_FusedConv2DBackpropInput")) {
  using ConvTypes = Types<float, double, half, bfloat16, int32_t>;
  if (!DispatchType(ConvTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
}

Status ConvKernel::Compute(KernelContext& ctx) {
  MR_ASSIGN_OR_RETURN(const ConvOp::Call call, op_.Get(ctx));
  if (!has_addend_) {
    MR_ASSIGN_OR_RETURN(Tensor * c, ctx.AllocateOutput(0, call.result));
    return RunConvolution(ctx, op_.kind(), call.geometry, *call.a, *call.b, c);
  }
  if (ctx.input(3).shape() != call.result) {
    return InvalidArgument("addend must have shape ", call.result.ToString(), ", but has ",
                           ctx.input(3).shape().ToString());
  }
  const float* addend = ctx.input(3).data<float>();
  MR_ASSIGN_OR_RETURN(Tensor * sum, ctx.ForwardOrAllocateOutput({3}, 0, call.result));
  return RunConvolution(ctx, op_.kind(), call.geometry, *call.a, *call.b, sum, {.addend = addend});
}

Status ConvShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, WindowAttrs::FromNode(c.node()));
  const bool depthwise = absl::StartsWith(c.node().type(), "Depthwise");
  const int rank = attrs.full_rank();
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, rank));
  MR_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(1, rank));
  const int64_t in = input.dim(attrs.channel_axis()), filter_in = filter.dim(rank - 2);
  const bool fits = depthwise ? in == filter_in : filter_in > 0 && in % filter_in == 0;
  if (in > 0 && filter_in >= 0 && !fits) {
    return InvalidArgument("the input of shape ", input.ToString(), " has ", in, " channels, which do not fit the ",
                           filter_in, " of the filter of shape ", filter.ToString());
  }
  int64_t out = filter.dim(rank - 1);
  if (depthwise) out = out < 0 || filter_in < 0 ? -1 : out * filter_in;
  PartialShape result = PartialShape::UnknownOfRank(rank);
  result.set_dim(0, input.dim(0));
  result.set_dim(attrs.channel_axis(), out);
  for (int i = 0; i < attrs.rank; ++i) {
    const int axis = attrs.spatial_axis(i);
    MR_ASSIGN_OR_RETURN(const WindowDim d, attrs.Slide(attrs.slot(i), input.dim(axis), filter.dim(i)));
    result.set_dim(axis, d.out);
  }
  c.set_output(0, result);
  return absl::OkStatus();
}

Status ConvBackpropInputShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, WindowAttrs::FromNode(c.node()));
  PartialShape result = PartialShape::UnknownOfRank(attrs.full_rank());
  if (c.node().is_type("Conv3DBackpropInput")) {
    MR_ASSIGN_OR_RETURN(result, c.input(0).MergeWith(result));
  } else {
    MR_ASSIGN_OR_RETURN(const PartialShape sizes, c.ShapeFromInput(0));
    if (sizes.known_rank() && sizes.rank() == attrs.full_rank()) result = sizes;
  }
  c.set_output(0, result);
  return absl::OkStatus();
}

Status ConvBackpropFilterShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, WindowAttrs::FromNode(c.node()));
  PartialShape result = PartialShape::UnknownOfRank(attrs.full_rank());
  if (c.node().is_type("Conv3DBackpropFilter")) {
    MR_ASSIGN_OR_RETURN(result, c.input(1).MergeWith(result));
  } else {
    MR_ASSIGN_OR_RETURN(const PartialShape sizes, c.ShapeFromInput(1));
    MR_ASSIGN_OR_RETURN(result, sizes.MergeWith(result));
  }
  c.set_output(0, result);
  return absl::OkStatus();
}

}  // namespace millrace
