// MaxPool over images: with the window as attributes, or as inputs (V2), and the gradients.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/max_pool_kernels.h"

namespace millrace {
namespace {

Status MaxPoolGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MaxPoolGrad", {c.input(0), c.output(0), c.grad()},
                           c.CopyAttrs({"ksize", "strides", "padding", "explicit_paddings", "data_format"})));
  return absl::OkStatus();
}
Status MaxPoolV2Gradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MaxPoolGradV2", {c.input(0), c.output(0), c.grad(), c.input(1), c.input(2)},
                           c.CopyAttrs({"padding", "data_format"})));
  return absl::OkStatus();
}
Status MaxPoolGradGradient(GradientContext& c) {
  if (c.AttrOr<std::string>("padding", "") == "EXPLICIT") {
    return Unimplemented("second gradient of MaxPool with explicit paddings");
  }
  c.set_input_grad(0, c.ZerosLike(c.input(0)));
  c.set_input_grad(1, c.ZerosLike(c.input(1)));
  c.set_input_grad(2, c.Op("MaxPoolGradGrad", {c.input(0), c.input(1), c.grad()},
                           c.CopyAttrs({"ksize", "strides", "padding", "data_format"})));
  return absl::OkStatus();
}
Status MaxPoolGradV2Gradient(GradientContext& c) {
  c.set_input_grad(0, c.ZerosLike(c.input(0)));
  c.set_input_grad(1, c.ZerosLike(c.input(1)));
  c.set_input_grad(2, c.Op("MaxPoolGradGradV2", {c.input(0), c.input(1), c.grad(), c.input(3), c.input(4)},
                           c.CopyAttrs({"padding", "data_format"})));
  return absl::OkStatus();
}
Status MaxPoolGradGradGradient(GradientContext& c) {
  c.set_input_grad(0, c.ZerosLike(c.input(0)));
  c.set_input_grad(1, c.ZerosLike(c.input(1)));
  c.set_input_grad(2, c.Op("MaxPoolGrad", {c.input(0), c.input(1), c.grad()},
                           c.CopyAttrs({"ksize", "strides", "padding", "data_format"})));
  return absl::OkStatus();
}

Status GradGradShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape out, c.WithRank(1, 4));
  c.set_output(0, out);
  return absl::OkStatus();
}

MILLRACE_OP(MaxPool)
    .Summary("The largest element of each 2-D window.")
    .Input("input: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
    .Shape(PoolShape)
    .Gradient(MaxPoolGradient);

MILLRACE_OP(MaxPoolV2)
    .Summary("The largest element of each 2-D window; the window is an input.")
    .Input("input: T")
    .Input("ksize: int32")
    .Input("strides: int32")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
    .Shape(PoolShape)
    .Gradient(MaxPoolV2Gradient);

MILLRACE_OP(MaxPoolGrad)
    .Summary("The gradient of MaxPool, which goes to the first maximum of each window.")
    .Input("orig_input: T")
    .Input("orig_output: T")
    .Input("grad: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64} "
        "= float")
    .Shape(PoolInputShape)
    .Gradient(MaxPoolGradGradient);

MILLRACE_OP(MaxPoolGradV2)
    .Summary("The gradient of MaxPoolV2.")
    .Input("orig_input: T")
    .Input("orig_output: T")
    .Input("grad: T")
    .Input("ksize: int32")
    .Input("strides: int32")
    .Output("output: T")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64} "
        "= float")
    .Shape(PoolInputShape)
    .Gradient(MaxPoolGradV2Gradient);

MILLRACE_OP(MaxPoolGradGrad)
    .Summary("The gradient of MaxPoolGrad.")
    .Input("orig_input: T")
    .Input("orig_output: T")
    .Input("grad: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Shape(GradGradShape)
    .Gradient(MaxPoolGradGradGradient);

MILLRACE_OP(MaxPoolGradGradV2)
    .Summary("The gradient of MaxPoolGradV2.")
    .Input("orig_input: T")
    .Input("orig_output: T")
    .Input("grad: T")
    .Input("ksize: int32")
    .Input("strides: int32")
    .Output("output: T")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Shape(GradGradShape)
    .NotDifferentiable();

MILLRACE_KERNEL(MaxPool, kCpu, MaxPoolKernel<RealTypes>);
MILLRACE_KERNEL(MaxPoolV2, kCpu, MaxPoolKernel<RealTypes>);
MILLRACE_KERNEL(MaxPoolGrad, kCpu, MaxPoolGradKernel<RealTypes, false>);
MILLRACE_KERNEL(MaxPoolGradV2, kCpu, MaxPoolGradKernel<RealTypes, false>);
MILLRACE_KERNEL(MaxPoolGradGrad, kCpu, MaxPoolGradKernel<RealTypes, true>);
MILLRACE_KERNEL(MaxPoolGradGradV2, kCpu, MaxPoolGradKernel<RealTypes, true>);
MILLRACE_HOST_MEMORY(MaxPoolV2, "GPU", "ksize");
MILLRACE_HOST_MEMORY(MaxPoolV2, "GPU", "strides");
MILLRACE_HOST_MEMORY(MaxPoolGradV2, "GPU", "ksize");
MILLRACE_HOST_MEMORY(MaxPoolGradV2, "GPU", "strides");
MILLRACE_HOST_MEMORY(MaxPoolGradGradV2, "GPU", "ksize");
MILLRACE_HOST_MEMORY(MaxPoolGradGradV2, "GPU", "strides");

}  // namespace
}  // namespace millrace
