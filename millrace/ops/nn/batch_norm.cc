// FusedBatchNorm in its three versions, and the gradients.
#include <cmath>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/ops/nn/channel_sums.h"
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
  // TensorFlow takes 5-D images under a 4-D format too.
  if (rank == wanted || (rank == 5 && wanted == 4)) return absl::OkStatus();
  return InvalidArgument("images of format ", format, " have ", wanted, " dimensions, not ", rank);
}

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

// Training used the batch's moments (outputs 3 and 4), inference those given (inputs 3 and 4).
Status BatchNormGradient(GradientContext& c) {
  const bool training = c.AttrOr("is_training", true);
  const std::string& type = c.node()->type();
  std::vector<Endpoint> inputs = {c.grad(0), c.input(0), c.input(1),
                                  training ? c.output(3) : c.input(3),
                                  training ? c.output(4) : c.input(4)};
  std::string op = "FusedBatchNormGrad";
  if (type == "FusedBatchNormV2") op = "FusedBatchNormGradV2";
  if (type == "FusedBatchNormV3") {
    op = "FusedBatchNormGradV3";
    inputs.push_back(c.output(5));
  }
  AttrList attrs;
  for (const char* name : {"epsilon", "data_format", "is_training"}) {
    if (const pb::AttrValue* value = c.node()->FindAttr(name)) attrs.emplace_back(name, *value);
  }
  Node* grads = c.AddNode(op, inputs, std::move(attrs));
  if (grads == nullptr) return c.status();
  for (int i = 0; i < 3; ++i) c.set_input_grad(i, Endpoint{grads, i});
  return absl::OkStatus();
}

MILLRACE_OP(FusedBatchNorm)
    .Summary("Normalises each channel, by the batch's moments in training and by those given otherwise.")
    .Input("x: T")
    .Input("scale: T")
    .Input("offset: T")
    .Input("mean: T")
    .Input("variance: T")
    .Output("y: T")
    .Output("batch_mean: T")
    .Output("batch_variance: T")
    .Output("reserve_space_1: T")
    .Output("reserve_space_2: T")
    .Attr("T: {float}")
    .Attr("epsilon: float = 0.0001")
    .Attr("exponential_avg_factor: float = 1.0")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("is_training: bool = true")
    .Shape(BatchNormShape)
    .Gradient(BatchNormGradient);

MILLRACE_OP(FusedBatchNormV2)
    .Summary("FusedBatchNorm of images that may be of a smaller type than the moments.")
    .Input("x: T")
    .Input("scale: U")
    .Input("offset: U")
    .Input("mean: U")
    .Input("variance: U")
    .Output("y: T")
    .Output("batch_mean: U")
    .Output("batch_variance: U")
    .Output("reserve_space_1: U")
    .Output("reserve_space_2: U")
    .Attr("T: {half, bfloat16, float}")
    .Attr("U: {float}")
    .Attr("epsilon: float = 0.0001")
    .Attr("exponential_avg_factor: float = 1.0")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("is_training: bool = true")
    .Shape(BatchNormShape)
    .Gradient(BatchNormGradient);

MILLRACE_OP(FusedBatchNormV3)
    .Summary("FusedBatchNorm, also of volumes.")
    .Input("x: T")
    .Input("scale: U")
    .Input("offset: U")
    .Input("mean: U")
    .Input("variance: U")
    .Output("y: T")
    .Output("batch_mean: U")
    .Output("batch_variance: U")
    .Output("reserve_space_1: U")
    .Output("reserve_space_2: U")
    .Output("reserve_space_3: U")
    .Attr("T: {half, bfloat16, float}")
    .Attr("U: {bfloat16, float}")
    .Attr("epsilon: float = 0.0001")
    .Attr("exponential_avg_factor: float = 1.0")
    .Attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
    .Attr("is_training: bool = true")
    .Shape(BatchNormShape)
    .Gradient(BatchNormGradient);

MILLRACE_OP(FusedBatchNormGrad)
    .Summary("The gradient of FusedBatchNorm.")
    .Input("y_backprop: T")
    .Input("x: T")
    .Input("scale: T")
    .Input("reserve_space_1: T")
    .Input("reserve_space_2: T")
    .Output("x_backprop: T")
    .Output("scale_backprop: T")
    .Output("offset_backprop: T")
    .Output("reserve_space_3: T")
    .Output("reserve_space_4: T")
    .Attr("T: {float}")
    .Attr("epsilon: float = 0.0001")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("is_training: bool = true")
    .Shape(BatchNormGradShape)
    .NotDifferentiable();

MILLRACE_OP(FusedBatchNormGradV2)
    .Summary("The gradient of FusedBatchNormV2.")
    .Input("y_backprop: T")
    .Input("x: T")
    .Input("scale: float")
    .Input("reserve_space_1: U")
    .Input("reserve_space_2: U")
    .Output("x_backprop: T")
    .Output("scale_backprop: U")
    .Output("offset_backprop: U")
    .Output("reserve_space_3: U")
    .Output("reserve_space_4: U")
    .Attr("T: {half, bfloat16, float}")
    .Attr("U: {float}")
    .Attr("epsilon: float = 0.0001")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("is_training: bool = true")
    .Shape(BatchNormGradShape)
    .NotDifferentiable();

MILLRACE_OP(FusedBatchNormGradV3)
    .Summary("The gradient of FusedBatchNormV3.")
    .Input("y_backprop: T")
    .Input("x: T")
    .Input("scale: float")
    .Input("reserve_space_1: U")
    .Input("reserve_space_2: U")
    .Input("reserve_space_3: U")
    .Output("x_backprop: T")
    .Output("scale_backprop: U")
    .Output("offset_backprop: U")
    .Output("reserve_space_4: U")
    .Output("reserve_space_5: U")
    .Attr("T: {half, bfloat16, float}")
    .Attr("U: {float}")
    .Attr("epsilon: float = 0.0001")
    .Attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
    .Attr("is_training: bool = true")
    .Shape(BatchNormGradShape)
    .NotDifferentiable();

struct BatchNormAttrs {
  float epsilon = 0;
  bool training = true;
  bool channels_first = false;

  explicit BatchNormAttrs(KernelInit& init) {
    init.Attr("epsilon", &epsilon);
    init.Attr("is_training", &training);
    std::string format;
    init.Attr("data_format", &format);
    channels_first = IsChannelsFirst(format);
    const DType t = init.input_type(0);
    if (t != DType::kFloat && t != DType::kHalf && t != DType::kBFloat16) FailDType(init, t);
    if (init.input_type(2) != DType::kFloat) FailDType(init, init.input_type(2));
  }
};

// A vector of one element for each channel.
Status CheckVector(const Tensor& t, int64_t channels, absl::string_view name) {
  if (t.rank() == 1 && t.dim(0) == channels) return absl::OkStatus();
  return InvalidArgument(name, " must be a vector of ", channels, " elements, one for each channel, but has shape ",
                         t.shape().ToString());
}

class BatchNormKernel : public Kernel {
 public:
  explicit BatchNormKernel(KernelInit& init) : attrs_(init) {
    init.Attr("exponential_avg_factor", &factor_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_RETURN_IF_ERROR(CheckRank(ctx.node(), x.rank()));
    const ChannelBlocks v = ChannelBlocks::Of(x.shape(), attrs_.channels_first);
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(1), v.channels, "scale"));
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(2), v.channels, "offset"));
    // In training the running moments matter only when they are averaged with the batch's.
    if (!attrs_.training || factor_ != 1.0f) {
      MR_RETURN_IF_ERROR(CheckVector(ctx.input(3), v.channels, "mean"));
      MR_RETURN_IF_ERROR(CheckVector(ctx.input(4), v.channels, "variance"));
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    const Shape vector({v.channels});
    float* out[4];
    for (int i = 0; i < 4; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * t, ctx.AllocateOutput(i + 1, vector));
      out[i] = t->data<float>();
    }
    if (ctx.num_outputs() > 5) {
      MR_ASSIGN_OR_RETURN(Tensor * unused, ctx.AllocateOutput(5, Shape()));
      unused->scalar<float>() = 0;
    }
    MR_ASSIGN_OR_RETURN(const Tensor in, AsFloat(ctx, x));
    Moments(ctx, v, in.data<float>(), out);
    if (y->dtype() == DType::kFloat) {
      Normalise(ctx, v, in.data<float>(), out[2], out[3], y->data<float>());
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(DType::kFloat, x.shape()));
    Normalise(ctx, v, in.data<float>(), out[2], out[3], wide.data<float>());
    FromFloat(ctx, wide, y);
    return absl::OkStatus();
  }

 private:
  // out: running mean and variance, then the mean and variance that y is normalised with.
  void Moments(KernelContext& ctx, const ChannelBlocks& v, const float* x, float* const out[4]) const {
    const int64_t n = v.per_channel();
    const auto given = [&](int i) { return ctx.input(i).num_elements() == v.channels ? ctx.input(i).data<float>() : nullptr; };
    const float* mean = given(3);
    const float* variance = given(4);
    if (!attrs_.training) {
      for (float* to : {out[0], out[2]}) std::copy(mean, mean + v.channels, to);
      for (float* to : {out[1], out[3]}) std::copy(variance, variance + v.channels, to);
      return;
    }
    if (n == 0) {
      for (int i = 0; i < 4; ++i) std::fill(out[i], out[i] + v.channels, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    SumByChannel(ctx, v, out[2], [x](int64_t i, int64_t) { return x[i]; });
    for (int64_t c = 0; c < v.channels; ++c) out[2][c] /= static_cast<float>(n);
    const float* centre = out[2];
    SumByChannel(ctx, v, out[3], [x, centre](int64_t i, int64_t c) {
      const float d = x[i] - centre[c];
      return d * d;
    });
    // The running variance is that of the population the batch was drawn from.
    const float unbiased = static_cast<float>(n) / static_cast<float>(std::max<int64_t>(n - 1, 1));
    for (int64_t c = 0; c < v.channels; ++c) {
      out[3][c] /= static_cast<float>(n);
      out[0][c] = out[2][c];
      out[1][c] = out[3][c] * unbiased;
      if (factor_ != 1.0f) {
        out[0][c] = (1.0f - factor_) * mean[c] + factor_ * out[0][c];
        out[1][c] = (1.0f - factor_) * variance[c] + factor_ * out[1][c];
      }
    }
  }

  void Normalise(KernelContext& ctx, const ChannelBlocks& v, const float* x, const float* mean,
                 const float* variance, float* y) const {
    const float* scale = ctx.input(1).data<float>();
    const float* offset = ctx.input(2).data<float>();
    std::vector<float> factor(v.channels);
    for (int64_t c = 0; c < v.channels; ++c) factor[c] = scale[c] / std::sqrt(variance[c] + attrs_.epsilon);
    const float* f = factor.data();
    ForEachByChannel(ctx, v, [=](int64_t i, int64_t c) { y[i] = (x[i] - mean[c]) * f[c] + offset[c]; });
  }

  const BatchNormAttrs attrs_;
  float factor_ = 1;
};

class BatchNormGradKernel : public Kernel {
 public:
  explicit BatchNormGradKernel(KernelInit& init) : attrs_(init) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& dy = ctx.input(0);
    const Tensor& x = ctx.input(1);
    MR_RETURN_IF_ERROR(CheckRank(ctx.node(), x.rank()));
    if (dy.shape() != x.shape()) {
      return InvalidArgument("y_backprop has shape ", dy.shape().ToString(), ", but x has ", x.shape().ToString());
    }
    const ChannelBlocks v = ChannelBlocks::Of(x.shape(), attrs_.channels_first);
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(2), v.channels, "scale"));
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(3), v.channels, "reserve_space_1"));
    MR_RETURN_IF_ERROR(CheckVector(ctx.input(4), v.channels, "reserve_space_2"));
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, x.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * dscale, ctx.AllocateOutput(1, Shape({v.channels})));
    MR_ASSIGN_OR_RETURN(Tensor * doffset, ctx.AllocateOutput(2, Shape({v.channels})));
    for (int i = 3; i < 5; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * unused, ctx.AllocateOutput(i, Shape()));
      unused->scalar<float>() = 0;
    }
    MR_ASSIGN_OR_RETURN(const Tensor grad, AsFloat(ctx, dy));
    MR_ASSIGN_OR_RETURN(const Tensor in, AsFloat(ctx, x));
    Tensor wide = *dx;
    if (dx->dtype() != DType::kFloat) {
      MR_ASSIGN_OR_RETURN(wide, ctx.AllocateTemp(DType::kFloat, x.shape()));
    }
    Gradients(ctx, v, grad.data<float>(), in.data<float>(), wide.data<float>(), dscale->data<float>(),
              doffset->data<float>());
    if (dx->dtype() != DType::kFloat) FromFloat(ctx, wide, dx);
    return absl::OkStatus();
  }

 private:
  void Gradients(KernelContext& ctx, const ChannelBlocks& v, const float* dy, const float* x, float* dx,
                 float* dscale, float* doffset) const {
    const float* scale = ctx.input(2).data<float>();
    const float* mean = ctx.input(3).data<float>();
    const float* variance = ctx.input(4).data<float>();
    SumByChannel(ctx, v, doffset, [dy](int64_t i, int64_t) { return dy[i]; });
    SumByChannel(ctx, v, dscale, [=](int64_t i, int64_t c) { return dy[i] * (x[i] - mean[c]); });
    // dx = slope * (dy - shift - (x - mean) * tilt); in inference only the slope is left.
    std::vector<float> slope(v.channels), shift(v.channels, 0.0f), tilt(v.channels, 0.0f);
    const float n = static_cast<float>(std::max<int64_t>(v.per_channel(), 1));
    for (int64_t c = 0; c < v.channels; ++c) {
      const float inverse = 1.0f / std::sqrt(variance[c] + attrs_.epsilon);
      slope[c] = scale[c] * inverse;
      if (attrs_.training) {
        shift[c] = doffset[c] / n;
        tilt[c] = dscale[c] / n * inverse * inverse;
      }
      dscale[c] *= inverse;
    }
    const float *a = slope.data(), *b = shift.data(), *t = tilt.data();
    ForEachByChannel(ctx, v, [=](int64_t i, int64_t c) {
      dx[i] = a[c] * (dy[i] - b[c] - (x[i] - mean[c]) * t[c]);
    });
  }

  const BatchNormAttrs attrs_;
};

MILLRACE_KERNEL(FusedBatchNorm, kCpu, BatchNormKernel);
MILLRACE_KERNEL(FusedBatchNormV2, kCpu, BatchNormKernel);
MILLRACE_KERNEL(FusedBatchNormV3, kCpu, BatchNormKernel);
MILLRACE_KERNEL(FusedBatchNormGrad, kCpu, BatchNormGradKernel);
MILLRACE_KERNEL(FusedBatchNormGradV2, kCpu, BatchNormGradKernel);
MILLRACE_KERNEL(FusedBatchNormGradV3, kCpu, BatchNormGradKernel);

}  // namespace
}  // namespace millrace
