#include "millrace/ops/nn/batch_norm_kernels.h"

#include <cmath>
#include <limits>

#include "millrace/graph/passes/pass.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/ops/nn/batch_norm_passes.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

bool IsChannelsFirst(const std::string& format) { return format.size() > 1 && format[1] == 'C'; }

StatusOr<int> ChannelAxis(const Node& node, int rank) {
  MR_ASSIGN_OR_RETURN(const std::string format, node.Attr<std::string>("data_format"));
  return IsChannelsFirst(format) ? 1 : rank - 1;
}

// Images of rank 4, or 5 for the volumes of V3.
Status CheckRank(const Node& node, int rank) {
  MR_ASSIGN_OR_RETURN(const std::string format, node.Attr<std::string>("data_format"));
  const int wanted = static_cast<int>(format.size());
  // TensorFlow also accepts 5-D images with a 4-D format.
  if (rank == wanted || (rank == 5 && wanted == 4)) return absl::OkStatus();
  return InvalidArgument("images of format ", format, " have ", wanted, " dimensions, not ", rank);
}

// A vector of one element per channel.
Status CheckVector(const Tensor& t, int64_t channels, absl::string_view name) {
  if (t.rank() == 1 && t.dim(0) == channels) return absl::OkStatus();
  return InvalidArgument(name, " must be a vector of ", channels, " elements, one for each channel, but has shape ",
                         t.shape().ToString());
}
Status CheckSameShape(const Tensor& t, const Tensor& x, absl::string_view name) {
  if (t.shape() == x.shape()) return absl::OkStatus();
  return InvalidArgument(name, " has shape ", t.shape().ToString(), ", but x has ", x.shape().ToString());
}

// The per-channel vectors of one execution, in one allocation.
class ChannelVectors {
 public:
  static StatusOr<ChannelVectors> Make(KernelContext& ctx, int64_t count, int64_t channels) {
    ChannelVectors vectors;
    vectors.channels_ = channels;
    MR_ASSIGN_OR_RETURN(vectors.memory_, ctx.AllocateTemp(DType::kFloat, Shape({count, channels})));
    return vectors;
  }
  float* operator[](int64_t i) { return memory_.data<float>() + i * channels_; }

 private:
  Tensor memory_;
  int64_t channels_ = 0;
};

}  // namespace

Status BatchNormShape(ShapeContext& c) {
  PartialShape x = c.input(0);
  int64_t channels = -1;
  int axis = -1;
  if (x.known_rank()) {
    MR_RETURN_IF_ERROR(CheckRank(c.node(), x.rank()));
    MR_ASSIGN_OR_RETURN(axis, ChannelAxis(c.node(), x.rank()));
    channels = x.dim(axis);
  }
  PartialShape vector({channels});
  for (int i = 1; i < 3; ++i) {
    MR_ASSIGN_OR_RETURN(const PartialShape v, c.WithRank(i, 1));
    MR_ASSIGN_OR_RETURN(vector, vector.MergeWith(v));
  }
  if (axis >= 0) x.set_dim(axis, vector.dim(0));
  c.set_output(0, x);
  for (int i = 1; i < 5; ++i) c.set_output(i, vector);
  if (c.num_outputs() > 5) c.set_output(5, PartialShape());
  return absl::OkStatus();
}

Status BatchNormGradShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape x, c.input(0).MergeWith(c.input(1)));
  MR_ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(2, 1));
  c.set_output(0, x);
  c.set_output(1, vector);
  c.set_output(2, vector);
  c.set_output(3, PartialShape());
  c.set_output(4, PartialShape());
  return absl::OkStatus();
}

BatchNormAttrs::BatchNormAttrs(KernelInit& init) {
  init.Attr("epsilon", &epsilon);
  init.Attr("is_training", &training);
  std::string format;
  init.Attr("data_format", &format);
  channels_first = IsChannelsFirst(format);
  const DType t = init.input_type(0);
  if (t != DType::kFloat && t != DType::kHalf && t != DType::kBFloat16) FailDType(init, t);
  if (init.input_type(2) != DType::kFloat) FailDType(init, init.input_type(2));
  if (init.node().FindAttr("activation_mode") == nullptr) return;
  init.Attr("num_side_inputs", &num_side_inputs);
  moments_given = init.node().AttrOr<bool>(kMomentsGivenAttr, false);
  std::string activation;
  init.Attr("activation_mode", &activation);
  relu = activation == "Relu";
  if (!relu && activation != "Identity") {
    init.Fail(InvalidArgument("activation_mode must be Identity or Relu, not '", activation, "'"));
  }
  if (num_side_inputs > 1) init.Fail(InvalidArgument("there is one side input at most, not ", num_side_inputs));
}

StatusOr<ChannelBlocks> CheckBatchNorm(KernelContext& ctx, const BatchNormAttrs& attrs, float factor) {
  const Tensor& x = ctx.input(0);
  MR_RETURN_IF_ERROR(CheckRank(ctx.node(), x.rank()));
  const ChannelBlocks v = ChannelBlocks::Of(x.shape(), attrs.channels_first);
  MR_RETURN_IF_ERROR(CheckVector(ctx.input(1), v.channels, "scale"));
  MR_RETURN_IF_ERROR(CheckVector(ctx.input(2), v.channels, "offset"));
  // In training the running moments are used only if they are averaged with the batch's.
  if (!attrs.training || factor != 1.0f || attrs.moments_given) {
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(3), v.channels, "mean"));
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(4), v.channels, "variance"));
  }
  if (attrs.num_side_inputs > 0) MR_RETURN_IF_ERROR(CheckSameShape(ctx.input(5), x, "side_input"));
  return v;
}

StatusOr<ChannelBlocks> CheckBatchNormGrad(KernelContext& ctx, const BatchNormAttrs& attrs) {
  const Tensor& x = ctx.input(1);
  MR_RETURN_IF_ERROR(CheckRank(ctx.node(), x.rank()));
  const ChannelBlocks v = ChannelBlocks::Of(x.shape(), attrs.channels_first);
  MR_RETURN_IF_ERROR(CheckSameShape(ctx.input(0), x, "y_backprop"));
  MR_RETURN_IF_ERROR(CheckVector(ctx.input(2), v.channels, "scale"));
  MR_RETURN_IF_ERROR(CheckVector(ctx.input(3), v.channels, "reserve_space_1"));
  MR_RETURN_IF_ERROR(CheckVector(ctx.input(4), v.channels, "reserve_space_2"));
  if (!attrs.relu) return v;
  MR_RETURN_IF_ERROR(CheckVector(ctx.input(6), v.channels, "offset"));
  MR_RETURN_IF_ERROR(CheckSameShape(ctx.input(7), x, "y"));
  return v;
}

BatchNormKernel::BatchNormKernel(KernelInit& init) : attrs_(init) { init.Attr("exponential_avg_factor", &factor_); }

Status BatchNormKernel::Compute(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  MR_ASSIGN_OR_RETURN(const ChannelBlocks v, CheckBatchNorm(ctx, attrs_, factor_));
  const bool side = attrs_.num_side_inputs > 0;
  MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
  float* out[4];
  for (int i = 0; i < 4; ++i) {
    MR_ASSIGN_OR_RETURN(Tensor * t, ctx.AllocateOutput(i + 1, Shape({v.channels})));
    out[i] = t->data<float>();
  }
  if (ctx.num_outputs() > 5) {
    MR_ASSIGN_OR_RETURN(Tensor * unused, ctx.AllocateOutput(5, Shape()));
    unused->scalar<float>() = 0;
  }
  MR_ASSIGN_OR_RETURN(const Tensor in, AsFloat(ctx, x));
  MR_RETURN_IF_ERROR(SetMoments(ctx, v, in.data<float>(), out));
  if (v.size() == 0) return absl::OkStatus();

  MR_ASSIGN_OR_RETURN(ChannelVectors factor, ChannelVectors::Make(ctx, 1, v.channels));
  const float* scale = ctx.input(1).data<float>();
  for (int64_t c = 0; c < v.channels; ++c) factor[0][c] = scale[c] / std::sqrt(out[3][c] + attrs_.epsilon);
  const batch_norm::Affine affine{out[2], factor[0], ctx.input(2).data<float>()};
  Tensor added;
  if (side) {
    MR_ASSIGN_OR_RETURN(added, AsFloat(ctx, ctx.input(5)));
  }
  const batch_norm::Fused fused{.side = side ? added.data<float>() : nullptr, .relu = attrs_.relu};
  if (y->dtype() == DType::kFloat) {
    return batch_norm::Normalise(ctx, v, in.data<float>(), affine, fused, y->data<float>());
  }
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(DType::kFloat, x.shape()));
  MR_RETURN_IF_ERROR(batch_norm::Normalise(ctx, v, in.data<float>(), affine, fused, wide.data<float>()));
  FromFloat(ctx, wide, y);
  return absl::OkStatus();
}

// out: running mean and variance, then the mean and variance that y is normalised with.
Status BatchNormKernel::SetMoments(KernelContext& ctx, const ChannelBlocks& v, const float* x,
                                   float* const out[4]) const {
  const int64_t n = v.per_channel();
  const auto given = [&](int i) {
    return ctx.input(i).num_elements() == v.channels ? ctx.input(i).data<float>() : nullptr;
  };
  const float* mean = given(3);
  const float* variance = given(4);
  if (!attrs_.training) {
    for (float* to : {out[0], out[2]}) std::copy(mean, mean + v.channels, to);
    for (float* to : {out[1], out[3]}) std::copy(variance, variance + v.channels, to);
    return absl::OkStatus();
  }
  if (n == 0) {
    for (int i = 0; i < 4; ++i) std::fill(out[i], out[i] + v.channels, std::numeric_limits<float>::quiet_NaN());
    return absl::OkStatus();
  }
  if (attrs_.moments_given) {
    std::copy(mean, mean + v.channels, out[2]);
    std::copy(variance, variance + v.channels, out[3]);
  } else {
    MR_RETURN_IF_ERROR(batch_norm::Moments(ctx, v, x, out[2], out[3]));
  }
  // The running variance is the unbiased estimate (Bessel's correction).
  const float unbiased = static_cast<float>(n) / static_cast<float>(std::max<int64_t>(n - 1, 1));
  for (int64_t c = 0; c < v.channels; ++c) {
    out[0][c] = out[2][c];
    out[1][c] = out[3][c] * unbiased;
    if (factor_ != 1.0f) {
      out[0][c] = (1.0f - factor_) * mean[c] + factor_ * out[0][c];
      out[1][c] = (1.0f - factor_) * variance[c] + factor_ * out[1][c];
    }
  }
  return absl::OkStatus();
}

Status BatchNormGradKernel::Compute(KernelContext& ctx) {
  const Shape shape = ctx.input(1).shape();
  MR_ASSIGN_OR_RETURN(const ChannelBlocks v, CheckBatchNormGrad(ctx, attrs_));
  MR_ASSIGN_OR_RETURN(Tensor * dscale, ctx.AllocateOutput(1, Shape({v.channels})));
  MR_ASSIGN_OR_RETURN(Tensor * doffset, ctx.AllocateOutput(2, Shape({v.channels})));
  for (int i = 3; i < 5; ++i) {
    MR_ASSIGN_OR_RETURN(Tensor * unused, ctx.AllocateOutput(i, Shape()));
    unused->scalar<float>() = 0;
  }
  const bool side = attrs_.num_side_inputs > 0;
  if (ctx.input(0).dtype() == DType::kFloat) {
    const float* dy = ctx.input(0).data<float>();
    const float* x = ctx.input(1).data<float>();
    // In place: dz over dy, and dx over its operand.
    Tensor* dz = nullptr;
    if (side) {
      MR_ASSIGN_OR_RETURN(dz, ctx.ForwardOrAllocateOutput({0}, 5, shape));
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.ForwardOrAllocateOutput({0, 1}, 0, shape));
    return Gradients(ctx, v, dy, x, side ? dz->data<float>() : nullptr, dx->data<float>(), dscale->data<float>(),
                     doffset->data<float>());
  }
  MR_ASSIGN_OR_RETURN(const Tensor dy, AsFloat(ctx, ctx.input(0)));
  MR_ASSIGN_OR_RETURN(const Tensor x, AsFloat(ctx, ctx.input(1)));
  MR_ASSIGN_OR_RETURN(Tensor wide_dx, ctx.AllocateTemp(DType::kFloat, shape));
  Tensor wide_dz;
  if (side) {
    MR_ASSIGN_OR_RETURN(wide_dz, ctx.AllocateTemp(DType::kFloat, shape));
  }
  MR_RETURN_IF_ERROR(Gradients(ctx, v, dy.data<float>(), x.data<float>(), side ? wide_dz.data<float>() : nullptr,
                               wide_dx.data<float>(), dscale->data<float>(), doffset->data<float>()));
  MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, shape));
  FromFloat(ctx, wide_dx, dx);
  if (side) {
    MR_ASSIGN_OR_RETURN(Tensor * dz, ctx.AllocateOutput(5, shape));
    FromFloat(ctx, wide_dz, dz);
  }
  return absl::OkStatus();
}

Status BatchNormGradKernel::Gradients(KernelContext& ctx, const ChannelBlocks& v, const float* dy, const float* x,
                                      float* dz, float* dx, float* dscale, float* doffset) const {
  const float* scale = ctx.input(2).data<float>();
  const float* mean = ctx.input(3).data<float>();
  const float* variance = ctx.input(4).data<float>();
  MR_ASSIGN_OR_RETURN(ChannelVectors vectors, ChannelVectors::Make(ctx, 4, v.channels));
  float *slope = vectors[0], *shift = vectors[1], *tilt = vectors[2], *factor = vectors[3];
  for (int64_t c = 0; c < v.channels; ++c) factor[c] = scale[c] / std::sqrt(variance[c] + attrs_.epsilon);
  Tensor y;
  batch_norm::Backward back{.dy = dy, .x = x, .affine = {mean, factor, mean}, .relu = attrs_.relu, .dz = dz};
  if (attrs_.relu) {
    back.affine.offset = ctx.input(6).data<float>();
    // The relu's mask cannot be recomputed with a side input, or if x was rounded to a narrower type.
    if (dz != nullptr || ctx.input(7).dtype() != DType::kFloat) {
      MR_ASSIGN_OR_RETURN(y, AsFloat(ctx, ctx.input(7)));
      back.y = y.data<float>();
    }
  }
  MR_RETURN_IF_ERROR(batch_norm::GradientSums(ctx, v, back, doffset, dscale));
  // In inference the moments are constants, and only the slope remains.
  const float n = static_cast<float>(std::max<int64_t>(v.per_channel(), 1));
  for (int64_t c = 0; c < v.channels; ++c) {
    const float inverse = 1.0f / std::sqrt(variance[c] + attrs_.epsilon);
    slope[c] = scale[c] * inverse;
    shift[c] = attrs_.training ? doffset[c] / n : 0.0f;
    tilt[c] = attrs_.training ? dscale[c] / n * inverse * inverse : 0.0f;
    dscale[c] *= inverse;
  }
  if (dz != nullptr) {
    back.dy = dz;
    back.relu = false;
  }
  return batch_norm::GradientOfInput(ctx, v, back, {slope, shift, tilt}, dx);
}

}  // namespace millrace
