// Conv3D and the gradients of its operands, in their two versions.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/ops/nn/convolution_gradients.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr const char* kConv3DAttrs[] = {"strides", "padding", "data_format", "dilations"};
constexpr ConvolutionOps kConv3D = {"Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", kConv3DAttrs};

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
    .Gradient(ConvolutionGradient<kConv3D>);

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
    .Gradient(ConvolutionInputGradient<kConv3D>);

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
    .Gradient(ConvolutionFilterGradient<kConv3D>);

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
MILLRACE_HOST_MEMORY(Conv3DBackpropInputV2, "GPU", "input_sizes");
MILLRACE_HOST_MEMORY(Conv3DBackpropFilterV2, "GPU", "filter_sizes");

}  // namespace
}  // namespace millrace
