// _FusedConv2DBackpropInput: the gradient of a convolution's input, and the addition of another gradient while it is in
// the cache. Created by a graph pass.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

MILLRACE_OP(_FusedConv2DBackpropInput)
    .Summary("Fused Conv2DBackpropInput and addition.")
    .Input("input_sizes: int32")
    .Input("filter: T")
    .Input("out_backprop: T")
    .Input("addend: T")
    .Output("output: T")
    .Attr("T: {float}")
    .Attr("strides: list(int)")
    .Attr("use_cudnn_on_gpu: bool = true")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Shape(ConvBackpropInputShape)
    .NotDifferentiable();

MILLRACE_KERNEL(_FusedConv2DBackpropInput, kCpu, ConvKernel);

}  // namespace
}  // namespace millrace
