// Conv3D and the gradients of its operands, in their two versions.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

AttrList SameAttrs(GradientContext& c) {
  AttrList attrs;
  for (const char* name : {"strides", "padding", "data_format", "dilations"}) {
    if (const pb::AttrValue* value = c.node()->FindAttr(name)) attrs.emplace_back(name, *value);
  }
  return attrs;
}

Status Conv3DGradient(GradientContext& c) {
  const Endpoint x = c.input(0), filter = c.input(1), g = c.grad();
  c.set_input_grad(0, c.Op("Conv3DBackpropInputV2", {c.Shape(x), filter, g}, SameAttrs(c)));
  c.set_input_grad(1, c.Op("Conv3DBackpropFilterV2", {x, c.Shape(filter), g}, SameAttrs(c)));
  return absl::OkStatus();
}
Status BackpropInputGradient(GradientContext& c) {
  const Endpoint filter = c.input(1), dy = c.input(2), g = c.grad();
  c.set_input_grad(1, c.Op("Conv3DBackpropFilterV2", {g, c.Shape(filter), dy}, SameAttrs(c)));
  c.set_input_grad(2, c.Op("Conv3D", {g, filter}, SameAttrs(c)));
  return absl::OkStatus();
}
Status BackpropFilterGradient(GradientContext& c) {
  const Endpoint x = c.input(0), dy = c.input(2), g = c.grad();
  c.set_input_grad(0, c.Op("Conv3DBackpropInputV2", {c.Shape(x), g, dy}, SameAttrs(c)));
  c.set_input_grad(2, c.Op("Conv3D", {x, g}, SameAttrs(c)));
  return absl::OkStatus();
}

MILLRACE_OP(Conv3D)
    .Summary("A 3-D convolution of volumes with filters.")
    .Input("input: T")
    .Input("filter: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1, 1]")
    .Shape(ConvShape)
    .Gradient(Conv3DGradient);

MILLRACE_OP(Conv3DBackpropInputV2)
    .Summary("The gradient of Conv3D for its input.")
    .Input("input_sizes: Tshape")
    .Input("filter: T")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1, 1]")
    .Attr("Tshape: {int32, int64} = int32")
    .Shape(ConvBackpropInputShape)
    .Gradient(BackpropInputGradient);

MILLRACE_OP(Conv3DBackpropFilterV2)
    .Summary("The gradient of Conv3D for its filter.")
    .Input("input: T")
    .Input("filter_sizes: int32")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1, 1]")
    .Shape(ConvBackpropFilterShape)
    .Gradient(BackpropFilterGradient);

MILLRACE_OP(Conv3DBackpropInput)
    .Summary("The gradient of Conv3D for its input, whose shape is taken from the input itself.")
    .Input("input: T")
    .Input("filter: T")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr("T: {half, float, double}")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("dilations: list(int) = [1, 1, 1, 1, 1]")
    .Shape(ConvBackpropInputShape)
    .NotDifferentiable();

MILLRACE_OP(Conv3DBackpropFilter)
    .Summary("The gradient of Conv3D for its filter, whose shape is taken from the filter itself.")
    .Input("input: T")
    .Input("filter: T")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr("T: {half, float, double}")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("dilations: list(int) = [1, 1, 1, 1, 1]")
    .Shape(ConvBackpropFilterShape)
    .NotDifferentiable();

MILLRACE_KERNEL(Conv3D, kCpu, ConvKernel);
MILLRACE_KERNEL(Conv3DBackpropInputV2, kCpu, ConvKernel);
MILLRACE_KERNEL(Conv3DBackpropFilterV2, kCpu, ConvKernel);
MILLRACE_KERNEL(Conv3DBackpropInput, kCpu, ConvKernel);
MILLRACE_KERNEL(Conv3DBackpropFilter, kCpu, ConvKernel);

}  // namespace
}  // namespace millrace
