// DepthwiseConv2dNative: every channel convolved with filters of its own, and the gradients.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

AttrList SameAttrs(GradientContext& c) {
  AttrList attrs;
  for (const char* name : {"strides", "padding", "explicit_paddings", "data_format", "dilations"}) {
    if (const pb::AttrValue* value = c.node()->FindAttr(name)) attrs.emplace_back(name, *value);
  }
  return attrs;
}

Status DepthwiseGradient(GradientContext& c) {
  const Endpoint x = c.input(0), filter = c.input(1), g = c.grad();
  c.set_input_grad(0, c.Op("DepthwiseConv2dNativeBackpropInput", {c.Shape(x), filter, g}, SameAttrs(c)));
  c.set_input_grad(1, c.Op("DepthwiseConv2dNativeBackpropFilter", {x, c.Shape(filter), g}, SameAttrs(c)));
  return absl::OkStatus();
}
Status BackpropInputGradient(GradientContext& c) {
  const Endpoint filter = c.input(1), dy = c.input(2), g = c.grad();
  c.set_input_grad(1, c.Op("DepthwiseConv2dNativeBackpropFilter", {g, c.Shape(filter), dy}, SameAttrs(c)));
  c.set_input_grad(2, c.Op("DepthwiseConv2dNative", {g, filter}, SameAttrs(c)));
  return absl::OkStatus();
}
Status BackpropFilterGradient(GradientContext& c) {
  const Endpoint x = c.input(0), dy = c.input(2), g = c.grad();
  c.set_input_grad(0, c.Op("DepthwiseConv2dNativeBackpropInput", {c.Shape(x), g, dy}, SameAttrs(c)));
  c.set_input_grad(2, c.Op("DepthwiseConv2dNative", {x, g}, SameAttrs(c)));
  return absl::OkStatus();
}

MILLRACE_OP(DepthwiseConv2dNative)
    .Summary("A 2-D convolution of each channel with filters of its own.")
    .Input("input: T")
    .Input("filter: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("strides: list(int)")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Shape(ConvShape)
    .Gradient(DepthwiseGradient);

MILLRACE_OP(DepthwiseConv2dNativeBackpropInput)
    .Summary("The gradient of DepthwiseConv2dNative for its input.")
    .Input("input_sizes: int32")
    .Input("filter: T")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("strides: list(int)")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Shape(ConvBackpropInputShape)
    .Gradient(BackpropInputGradient);

MILLRACE_OP(DepthwiseConv2dNativeBackpropFilter)
    .Summary("The gradient of DepthwiseConv2dNative for its filter.")
    .Input("input: T")
    .Input("filter_sizes: int32")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("strides: list(int)")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Shape(ConvBackpropFilterShape)
    .Gradient(BackpropFilterGradient);

MILLRACE_KERNEL(DepthwiseConv2dNative, kCpu, ConvKernel);
MILLRACE_KERNEL(DepthwiseConv2dNativeBackpropInput, kCpu, ConvKernel);
MILLRACE_KERNEL(DepthwiseConv2dNativeBackpropFilter, kCpu, ConvKernel);

}  // namespace
}  // namespace millrace
