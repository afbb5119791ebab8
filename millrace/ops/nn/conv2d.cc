// Conv2D and the gradients of its operands.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The attributes that all three ops have.
AttrList SameAttrs(GradientContext& c) {
  AttrList attrs;
  for (const char* name :
       {"strides", "use_cudnn_on_gpu", "padding", "explicit_paddings", "data_format", "dilations"}) {
    if (const pb::AttrValue* value = c.node()->FindAttr(name)) attrs.emplace_back(name, *value);
  }
  return attrs;
}

Status Conv2DGradient(GradientContext& c) {
  const Endpoint x = c.input(0), filter = c.input(1), g = c.grad();
  c.set_input_grad(0, c.Op("Conv2DBackpropInput", {c.Shape(x), filter, g}, SameAttrs(c)));
  c.set_input_grad(1, c.Op("Conv2DBackpropFilter", {x, c.Shape(filter), g}, SameAttrs(c)));
  return absl::OkStatus();
}
Status BackpropInputGradient(GradientContext& c) {
  const Endpoint filter = c.input(1), dy = c.input(2), g = c.grad();
  c.set_input_grad(1, c.Op("Conv2DBackpropFilter", {g, c.Shape(filter), dy}, SameAttrs(c)));
  c.set_input_grad(2, c.Op("Conv2D", {g, filter}, SameAttrs(c)));
  return absl::OkStatus();
}
Status BackpropFilterGradient(GradientContext& c) {
  const Endpoint x = c.input(0), dy = c.input(2), g = c.grad();
  c.set_input_grad(0, c.Op("Conv2DBackpropInput", {c.Shape(x), g, dy}, SameAttrs(c)));
  c.set_input_grad(2, c.Op("Conv2D", {x, g}, SameAttrs(c)));
  return absl::OkStatus();
}

MILLRACE_OP(Conv2D)
    .Summary("A 2-D convolution of images with filters.")
    .Input("input: T")
    .Input("filter: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double, int32}")
    .Attr("strides: list(int)")
    .Attr("use_cudnn_on_gpu: bool = true")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Shape(ConvShape)
    .Gradient(Conv2DGradient);

MILLRACE_OP(Conv2DBackpropInput)
    .Summary("The gradient of Conv2D for its input.")
    .Input("input_sizes: int32")
    .Input("filter: T")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double, int32}")
    .Attr("strides: list(int)")
    .Attr("use_cudnn_on_gpu: bool = true")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Shape(ConvBackpropInputShape)
    .Gradient(BackpropInputGradient);

MILLRACE_OP(Conv2DBackpropFilter)
    .Summary("The gradient of Conv2D for its filter.")
    .Input("input: T")
    .Input("filter_sizes: int32")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("strides: list(int)")
    .Attr("use_cudnn_on_gpu: bool = true")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Shape(ConvBackpropFilterShape)
    .Gradient(BackpropFilterGradient);

MILLRACE_KERNEL(Conv2D, kCpu, ConvKernel);
MILLRACE_KERNEL(Conv2DBackpropInput, kCpu, ConvKernel);
MILLRACE_KERNEL(Conv2DBackpropFilter, kCpu, ConvKernel);

}  // namespace
}  // namespace millrace
