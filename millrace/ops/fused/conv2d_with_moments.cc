// _Conv2DWithMoments: a convolution, and the mean and the variance of each channel of its output. Created by a graph
// pass from a Conv2D that batch normalisation follows.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status ConvWithMomentsShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(ConvShape(c));
  const PartialShape filter = c.input(1);
  for (const int i : {1, 2}) {
    PartialShape moments = PartialShape::UnknownOfRank(1);
    if (filter.known_rank() && filter.rank() == 4) moments.set_dim(0, filter.dim(3));
    c.set_output(i, moments);
  }
  return absl::OkStatus();
}

MILLRACE_OP(_Conv2DWithMoments)
    .Summary("Conv2D, and the mean and the variance of each channel of its output.")
    .Input("input: T")
    .Input("filter: T")
    .Output("output: T")
    .Output("mean: T")
    .Output("variance: T")
    .Attr("T: {float}")
    .Attr("strides: list(int)")
    .Attr("use_cudnn_on_gpu: bool = true")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Shape(ConvWithMomentsShape)
    .NotDifferentiable();

class ConvWithMomentsKernel : public Kernel {
 public:
  explicit ConvWithMomentsKernel(KernelInit& init) {
    StatusOr<WindowAttrs> attrs = WindowAttrs::FromNode(init.node());
    init.Fail(attrs.status());
    if (attrs.ok()) attrs_ = *attrs;
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& filter = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const ConvGeometry g, MakeConvGeometry(attrs_, x.shape(), filter.shape(), false));
    MR_ASSIGN_OR_RETURN(const Shape output, Shape::Make(ConvOutputShape(attrs_, g).dims()));
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, output));
    ConvEpilogue epilogue;
    for (float** moment : {&epilogue.mean, &epilogue.variance}) {
      MR_ASSIGN_OR_RETURN(Tensor * t, ctx.AllocateOutput(moment == &epilogue.mean ? 1 : 2, Shape({g.out_channels})));
      *moment = t->data<float>();
      std::fill(*moment, *moment + g.out_channels, 0.0f);
    }
    return RunConvolution(ctx, ConvKind::kForward, g, x, filter, y, epilogue);
  }

 private:
  WindowAttrs attrs_;
};

MILLRACE_KERNEL(_Conv2DWithMoments, kCpu, ConvWithMomentsKernel);

}  // namespace
}  // namespace millrace
