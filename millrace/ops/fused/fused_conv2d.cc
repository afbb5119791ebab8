// _FusedConv2D: a convolution, a bias and an activation in one pass over each piece while it is in the cache. Created
// by a graph pass from Conv2D, BiasAdd and an activation.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

MILLRACE_OP(_FusedConv2D)
    .Summary("Fused Conv2D, BiasAdd and activation.")
    .Input("input: T")
    .Input("filter: T")
    .Input("args: TArgs")
    .Input("host_args: num_host_args * float")
    .Output("output: T")
    .Attr("T: {half, float, double, int8, qint8}")
    .Attr("TArgs: list(type) >= 1")
    .Attr("num_args: int >= 0")
    .Attr("num_host_args: int >= 0 = 0")
    .Attr("strides: list(int)")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
    .Attr("filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Attr("use_cudnn_on_gpu: bool = true")
    .Attr("fused_ops: list(string) = []")
    .Attr("epsilon: float = 0.0001")
    .Attr("leakyrelu_alpha: float = 0.2")
    .Shape(ConvShape)
    .NotDifferentiable();

class FusedConv2DKernel : public Kernel {
 public:
  explicit FusedConv2DKernel(KernelInit& init) {
    init.Attr("leakyrelu_alpha", &alpha_);
    std::vector<std::string> ops;
    init.Attr("fused_ops", &ops);
    std::string filter_format;
    init.Attr("filter_format", &filter_format);
    StatusOr<WindowAttrs> attrs = WindowAttrs::FromNode(init.node());
    init.Fail(attrs.status());
    if (attrs.ok()) attrs_ = *attrs;
    if (ops.empty() || ops[0] != "BiasAdd" || ops.size() > 2 || init.node().num_inputs() != 3) {
      init.Fail(Unimplemented("fused_ops must be BiasAdd, or BiasAdd and an activation, with one argument"));
      return;
    }
    if (filter_format != "HWIO") init.Fail(Unimplemented("a filter of format ", filter_format));
    if (ops.size() == 2) {
      StatusOr<Activation> activation = ParseActivation(ops[1]);
      init.Fail(activation.status());
      activation_ = activation.value_or(Activation::kNone);
    }
    const DType t = init.output_type(0);
    if (t != DType::kFloat && t != DType::kHalf) FailDType(init, t);
    if (init.input_type(2) != t) FailDType(init, init.input_type(2));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& filter = ctx.input(1);
    const Tensor& bias = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const ConvGeometry g, MakeConvGeometry(attrs_, x.shape(), filter.shape(), false));
    if (bias.rank() != 1 || bias.dim(0) != g.out_channels) {
      return InvalidArgument("the bias must be a vector of ", g.out_channels, " elements, but has shape ",
                             bias.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const Shape output, Shape::Make(ConvOutputShape(attrs_, g).dims()));
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, output));
    MR_ASSIGN_OR_RETURN(const Tensor add, AsFloat(ctx, bias));
    return RunConvolution(ctx, ConvKind::kForward, g, x, filter, y, {add.data<float>(), activation_, alpha_});
  }

 private:
  WindowAttrs attrs_;
  float alpha_ = 0;
  Activation activation_ = Activation::kNone;
};

MILLRACE_KERNEL(_FusedConv2D, kCpu, FusedConv2DKernel);

}  // namespace
}  // namespace millrace
