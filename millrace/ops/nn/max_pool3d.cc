// MaxPool3D over volumes and its gradients.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/max_pool_kernels.h"

namespace millrace {
namespace {

AttrList MaxPool3DAttrs(GradientContext& c) { return c.CopyAttrs({"ksize", "strides", "padding", "data_format"}); }

Status MaxPool3DGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MaxPool3DGrad", {c.input(0), c.output(0), c.grad()}, MaxPool3DAttrs(c)));
  return absl::OkStatus();
}
Status MaxPool3DGradGradient(GradientContext& c) {
  c.set_input_grad(0, c.ZerosLike(c.input(0)));
  c.set_input_grad(1, c.ZerosLike(c.input(1)));
  c.set_input_grad(2, c.Op("MaxPool3DGradGrad", {c.input(0), c.input(1), c.grad()}, MaxPool3DAttrs(c)));
  return absl::OkStatus();
}
Status MaxPool3DGradGradGradient(GradientContext& c) {
  c.set_input_grad(0, c.ZerosLike(c.input(0)));
  c.set_input_grad(1, c.ZerosLike(c.input(1)));
  c.set_input_grad(2, c.Op("MaxPool3DGrad", {c.input(0), c.input(1), c.grad()}, MaxPool3DAttrs(c)));
  return absl::OkStatus();
}

Status GradGrad3DShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape out, c.WithRank(1, 5));
  c.set_output(0, out);
  return absl::OkStatus();
}

MILLRACE_OP(MaxPool3D)
    .Summary("The largest element of each 3-D window.")
    .Input("input: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 5")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
    .Attr("T: {half, bfloat16, float}")
    .Shape(PoolShape)
    .Gradient(MaxPool3DGradient);

MILLRACE_OP(MaxPool3DGrad)
    .Summary("The gradient of MaxPool3D.")
    .Input("orig_input: TInput")
    .Input("orig_output: TInput")
    .Input("grad: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 5")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
    .Attr("T: {half, bfloat16, float} = float")
    .Attr("TInput: {half, bfloat16, float} = float")
    .Shape(PoolInputShape)
    .Gradient(MaxPool3DGradGradient);

MILLRACE_OP(MaxPool3DGradGrad)
    .Summary("The gradient of MaxPool3DGrad.")
    .Input("orig_input: T")
    .Input("orig_output: T")
    .Input("grad: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 5")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Shape(GradGrad3DShape)
    .Gradient(MaxPool3DGradGradGradient);

using VolumeTypes = Types<float, half, bfloat16>;

MILLRACE_KERNEL(MaxPool3D, kCpu, MaxPoolKernel<VolumeTypes>);
MILLRACE_KERNEL(MaxPool3DGrad, kCpu, MaxPoolGradKernel<VolumeTypes, false>);
MILLRACE_KERNEL(MaxPool3DGradGrad, kCpu, MaxPoolGradKernel<VolumeTypes, true>);

}  // namespace
}  // namespace millrace
