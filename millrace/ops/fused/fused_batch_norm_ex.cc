// _FusedBatchNormEx and its gradient: batch normalisation, an addition and a relu in one pass over the images. Created
// by a graph pass from FusedBatchNormV3 and the ops that follow it.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/batch_norm_kernels.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status GradExShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(BatchNormGradShape(c));
  for (int i = 5; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return absl::OkStatus();
}

MILLRACE_OP(_FusedBatchNormEx)
    .Summary("Fused FusedBatchNormV3, addition of a side input and relu.")
    .Input("x: T")
    .Input("scale: U")
    .Input("offset: U")
    .Input("mean: U")
    .Input("variance: U")
    .Input("side_input: num_side_inputs * T")
    .Output("y: T")
    .Output("batch_mean: U")
    .Output("batch_variance: U")
    .Output("reserve_space_1: U")
    .Output("reserve_space_2: U")
    .Output("reserve_space_3: U")
    .Attr("T: {half, float, bfloat16}")
    .Attr("U: {float}")
    .Attr("epsilon: float = 0.0001")
    .Attr("exponential_avg_factor: float = 1.0")
    .Attr("num_side_inputs: int >= 0 = 0")
    .Attr("activation_mode: string = 'Identity'")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("is_training: bool = true")
    .Shape(BatchNormShape)
    .NotDifferentiable();

MILLRACE_OP(_FusedBatchNormGradEx)
    .Summary("The gradient of _FusedBatchNormEx.")
    .Input("y_backprop: T")
    .Input("x: T")
    .Input("scale: float")
    .Input("reserve_space_1: U")
    .Input("reserve_space_2: U")
    .Input("reserve_space_3: U")
    .Input("offset: float")
    .Input("y: T")
    .Output("x_backprop: T")
    .Output("scale_backprop: U")
    .Output("offset_backprop: U")
    .Output("reserve_space_4: U")
    .Output("reserve_space_5: U")
    .Output("side_input_backprop: num_side_inputs * T")
    .Attr("T: {half, float}")
    .Attr("U: {float}")
    .Attr("epsilon: float = 0.0001")
    .Attr("num_side_inputs: int >= 0 = 0")
    .Attr("activation_mode: string = 'Identity'")
    .Attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
    .Attr("is_training: bool = true")
    .Shape(GradExShape)
    .NotDifferentiable();

MILLRACE_KERNEL(_FusedBatchNormEx, kCpu, BatchNormKernel);
MILLRACE_KERNEL(_FusedBatchNormGradEx, kCpu, BatchNormGradKernel);

}  // namespace
}  // namespace millrace
