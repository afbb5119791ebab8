// FusedBatchNorm in its three versions, and the gradients.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/batch_norm_kernels.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Training used the batch's moments (outputs 3 and 4), inference those given (inputs 3 and 4).
Status BatchNormGradient(GradientContext& c) {
  const bool training = c.AttrOr("is_training", true);
  const std::string& type = c.node()->type();
  std::vector<Endpoint> inputs = {c.grad(0), c.input(0), c.input(1), training ? c.output(3) : c.input(3),
                                  training ? c.output(4) : c.input(4)};
  std::string op = "FusedBatchNormGrad";
  if (type == "FusedBatchNormV2") op = "FusedBatchNormGradV2";
  if (type == "FusedBatchNormV3") {
    op = "FusedBatchNormGradV3";
    inputs.push_back(c.output(5));
  }
  Node* grads = c.AddNode(op, inputs, c.CopyAttrs({"epsilon", "data_format", "is_training"}));
  if (grads == nullptr) return c.status();
  for (int i = 0; i < 3; ++i) c.set_input_grad(i, Endpoint{grads, i});
  return absl::OkStatus();
}

MILLRACE_OP(FusedBatchNorm)
    .Summary("Batch normalisation, by the batch's moments in training and by the given ones otherwise.")
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
    .Summary("FusedBatchNorm of images that may be of a narrower type than the moments.")
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
    .Summary("FusedBatchNormV2, also of volumes.")
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

MILLRACE_KERNEL(FusedBatchNorm, kCpu, BatchNormKernel);
MILLRACE_KERNEL(FusedBatchNormV2, kCpu, BatchNormKernel);
MILLRACE_KERNEL(FusedBatchNormV3, kCpu, BatchNormKernel);
MILLRACE_KERNEL(FusedBatchNormGrad, kCpu, BatchNormGradKernel);
MILLRACE_KERNEL(FusedBatchNormGradV2, kCpu, BatchNormGradKernel);
MILLRACE_KERNEL(FusedBatchNormGradV3, kCpu, BatchNormGradKernel);

}  // namespace
}  // namespace millrace
