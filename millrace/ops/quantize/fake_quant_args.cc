// FakeQuantWithMinMaxArgs: fake quantization in a range given by attrs.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/quantize/fake_quant.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr int64_t kFakeQuantGrain = 16384;

class ArgsKernel : public Kernel {
 public:
  explicit ArgsKernel(KernelInit& init) : range_(RangeOf(init)) {}

 protected:
  const NudgedRange range_;

 private:
  static NudgedRange RangeOf(KernelInit& init) {
    float min = -6, max = 6;
    init.Attr("min", &min);
    init.Attr("max", &max);
    const FakeQuantSteps steps(init);
    if (!(min < max)) init.Fail(InvalidArgument("min has to be smaller than max, was: ", min, " >= ", max));
    return NudgedRange(min, max, steps);
  }
};

class FakeQuantWithMinMaxArgsKernel : public ArgsKernel {
 public:
  using ArgsKernel::ArgsKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0}, 0, x.shape()));
    const float* from = x.data<float>();
    float* to = y->data<float>();
    ctx.ParallelFor(x.num_elements(), kFakeQuantGrain,
                    [&](int64_t begin, int64_t end) { range_.Quantize(from + begin, to + begin, end - begin); });
    return absl::OkStatus();
  }
};

class FakeQuantWithMinMaxArgsGradientKernel : public ArgsKernel {
 public:
  using ArgsKernel::ArgsKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &dy = ctx.input(0), &x = ctx.input(1);
    MR_RETURN_IF_ERROR(CheckSameShape(dy, x));
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.ForwardOrAllocateOutput({0}, 0, x.shape()));
    const float *gradient = dy.data<float>(), *from = x.data<float>();
    float* to = dx->data<float>();
    ctx.ParallelFor(x.num_elements(), kFakeQuantGrain, [&](int64_t begin, int64_t end) {
      range_.PassGradient(gradient + begin, from + begin, to + begin, end - begin);
    });
    return absl::OkStatus();
  }
};

Status ArgsGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const float min, c.Attr<float>("min"));
  MR_ASSIGN_OR_RETURN(const float max, c.Attr<float>("max"));
  MR_ASSIGN_OR_RETURN(const int64_t bits, c.Attr<int64_t>("num_bits"));
  MR_ASSIGN_OR_RETURN(const bool narrow, c.Attr<bool>("narrow_range"));
  c.set_input_grad(0, c.Op("FakeQuantWithMinMaxArgsGradient", {c.grad(), c.input(0)},
                           {{"min", min}, {"max", max}, {"num_bits", bits}, {"narrow_range", narrow}}));
  return absl::OkStatus();
}

Status MergedShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape merged, c.input(0).MergeWith(c.input(1)));
  c.set_output(0, merged);
  return absl::OkStatus();
}

MILLRACE_OP(FakeQuantWithMinMaxArgs)
    .Summary("Fake quantization in a range given by attrs.")
    .Input("inputs: float")
    .Output("outputs: float")
    .Attr("min: float = -6.0")
    .Attr("max: float = 6.0")
    .Attr("num_bits: int = 8")
    .Attr("narrow_range: bool = false")
    .Shape(UnchangedShape)
    .Gradient(ArgsGradient);
MILLRACE_OP(FakeQuantWithMinMaxArgsGradient)
    .Summary("The gradient of FakeQuantWithMinMaxArgs; zero outside the range.")
    .Input("gradients: float")
    .Input("inputs: float")
    .Output("backprops: float")
    .Attr("min: float = -6.0")
    .Attr("max: float = 6.0")
    .Attr("num_bits: int = 8")
    .Attr("narrow_range: bool = false")
    .Shape(MergedShape)
    .NotDifferentiable();
MILLRACE_KERNEL(FakeQuantWithMinMaxArgs, kCpu, FakeQuantWithMinMaxArgsKernel);
MILLRACE_KERNEL(FakeQuantWithMinMaxArgsGradient, kCpu, FakeQuantWithMinMaxArgsGradientKernel);

}  // namespace
}  // namespace millrace
