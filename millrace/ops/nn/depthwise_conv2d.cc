// DepthwiseConv2dNative: every channel convolved with filters of its own, and the gradients.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/ops/nn/convolution_gradients.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr const char* kDepthwiseAttrs[] = {"strides", "padding", "explicit_paddings", "data_format", "dilations"};
constexpr ConvolutionOps kDepthwise = {"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
                                       "DepthwiseConv2dNativeBackpropFilter", kDepthwiseAttrs};

MILLRACE_OP(DepthwiseConv2dNative)
    .Summary("A depthwise 2-D convolution: each channel has its own filters.")
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
    .Gradient(ConvolutionGradient<kDepthwise>);

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
    .Gradient(ConvolutionInputGradient<kDepthwise>);

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
    .Gradient(ConvolutionFilterGradient<kDepthwise>);

MILLRACE_KERNEL(DepthwiseConv2dNative, kCpu, ConvKernel);
MILLRACE_KERNEL(DepthwiseConv2dNativeBackpropInput, kCpu, ConvKernel);
MILLRACE_KERNEL(DepthwiseConv2dNativeBackpropFilter, kCpu, ConvKernel);
MILLRACE_HOST_MEMORY(DepthwiseConv2dNativeBackpropInput, "GPU", "input_sizes");
MILLRACE_HOST_MEMORY(DepthwiseConv2dNativeBackpropFilter, "GPU", "filter_sizes");

}  // namespace
}  // namespace millrace
