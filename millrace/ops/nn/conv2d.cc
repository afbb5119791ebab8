// Conv2D and the gradients of its operands.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/ops/nn/convolution_gradients.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr const char* kConv2DAttrs[] = {"strides",           "use_cudnn_on_gpu", "padding",
                                        "explicit_paddings", "data_format",      "dilations"};
constexpr ConvolutionOps kConv2D = {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", kConv2DAttrs};

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
    .Gradient(ConvolutionGradient<kConv2D>);

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
    .Gradient(ConvolutionInputGradient<kConv2D>);

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
    .Gradient(ConvolutionFilterGradient<kConv2D>);

MILLRACE_KERNEL(Conv2D, kCpu, ConvKernel);
MILLRACE_KERNEL(Conv2DBackpropInput, kCpu, ConvKernel);
MILLRACE_KERNEL(Conv2DBackpropFilter, kCpu, ConvKernel);
MILLRACE_HOST_MEMORY(Conv2DBackpropInput, "GPU", "input_sizes");
MILLRACE_HOST_MEMORY(Conv2DBackpropFilter, "GPU", "filter_sizes");

}  // namespace
}  // namespace millrace
