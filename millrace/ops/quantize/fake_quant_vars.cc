// FakeQuantWithMinMaxVars and FakeQuantWithMinMaxVarsPerChannel: fake quantization in ranges given as inputs, one for
// all elements or one per element of the last dimension.
#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/quantize/fake_quant.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr int64_t kChannelGrain = 16384;

// The number of ranges, `count`; range i covers the elements i, i + count, i + 2 count and so on.
StatusOr<int64_t> RangeCount(const Tensor& x, const Tensor& min, const Tensor& max, bool per_channel) {
  const int rank = per_channel ? 1 : 0;
  for (const Tensor* range : {&min, &max}) {
    if (range->rank() == rank) continue;
    return InvalidArgument(range == &min ? "`min`" : "`max`", " must be rank ", rank, " but is rank ", range->rank());
  }
  if (!per_channel) return 1;
  if (x.rank() == 0) return InvalidArgument("inputs must have a dimension of channels, but is a scalar");
  const int64_t channels = x.dim(x.rank() - 1);
  for (const Tensor* range : {&min, &max}) {
    if (range->dim(0) == channels) continue;
    return InvalidArgument(range == &min ? "min" : "max", " has incorrect size, expected ", channels, " was ",
                           range->dim(0));
  }
  return channels;
}

// An untrained range, from zero to zero, means no quantization yet.
bool IsUnset(float min, float max) { return min == 0.0f && max == 0.0f; }

template <bool kPerChannel>
class FakeQuantWithMinMaxVarsKernel : public Kernel {
 public:
  explicit FakeQuantWithMinMaxVarsKernel(KernelInit& init) : steps_(init) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &x = ctx.input(0), &min = ctx.input(1), &max = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const int64_t count, RangeCount(x, min, max, kPerChannel));
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    if (x.num_elements() == 0) return absl::OkStatus();
    const float* from = x.data<float>();
    float* to = y->data<float>();
    const int64_t rows = x.num_elements() / count;
    ctx.ParallelFor(rows, std::max<int64_t>(1, kChannelGrain / count), [&](int64_t begin, int64_t end) {
      for (int64_t c = 0; c < count; ++c) {
        const float low = min.data<float>()[c], high = max.data<float>()[c];
        const int64_t first = begin * count + c;
        if (IsUnset(low, high)) {
          for (int64_t i = 0; i < end - begin; ++i) to[first + i * count] = 0.0f;
        } else {
          NudgedRange(low, high, steps_).Quantize(from + first, to + first, end - begin, count);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const FakeQuantSteps steps_;
};

template <bool kPerChannel>
class FakeQuantWithMinMaxVarsGradientKernel : public Kernel {
 public:
  explicit FakeQuantWithMinMaxVarsGradientKernel(KernelInit& init) : steps_(init) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &dy = ctx.input(0), &x = ctx.input(1), &min = ctx.input(2), &max = ctx.input(3);
    MR_RETURN_IF_ERROR(CheckSameShape(dy, x));
    MR_ASSIGN_OR_RETURN(const int64_t count, RangeCount(x, min, max, kPerChannel));
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, x.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * dmin, ctx.AllocateOutput(1, min.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * dmax, ctx.AllocateOutput(2, max.shape()));
    const int64_t rows = count == 0 ? 0 : x.num_elements() / count;
    // One channel after another, so that sums do not depend on threads.
    for (int64_t c = 0; c < count; ++c) {
      const float low = min.data<float>()[c], high = max.data<float>()[c];
      double dlow = 0, dhigh = 0;
      if (IsUnset(low, high)) {
        for (int64_t i = 0; i < rows; ++i) dx->data<float>()[i * count + c] = dy.data<float>()[i * count + c];
      } else {
        NudgedRange(low, high, steps_)
            .Gradient(dy.data<float>() + c, x.data<float>() + c, dx->data<float>() + c, rows, count, &dlow, &dhigh);
      }
      dmin->data<float>()[c] = static_cast<float>(dlow);
      dmax->data<float>()[c] = static_cast<float>(dhigh);
    }
    return absl::OkStatus();
  }

 private:
  const FakeQuantSteps steps_;
};

// Input 0 is of output 0's shape; the two inputs from `range` on are the ends of the ranges.
StatusOr<PartialShape> VarsShape(ShapeContext& c, int range, bool per_channel) {
  const int rank = per_channel ? 1 : 0;
  MR_ASSIGN_OR_RETURN(PartialShape ends, c.WithRank(range, rank));
  MR_ASSIGN_OR_RETURN(const PartialShape upper, c.WithRank(range + 1, rank));
  MR_ASSIGN_OR_RETURN(ends, ends.MergeWith(upper));
  PartialShape x = c.input(0);
  if (range == 2) {
    MR_ASSIGN_OR_RETURN(x, x.MergeWith(c.input(1)));
  }
  if (per_channel && x.known_rank()) {
    if (x.rank() == 0) return InvalidArgument("Shape must be at least rank 1 but is rank 0");
    MR_ASSIGN_OR_RETURN(ends, ends.MergeWith(PartialShape({x.dim(x.rank() - 1)})));
    x.set_dim(x.rank() - 1, ends.dim(0));
  }
  c.set_output(0, x);
  return ends;
}
template <bool kPerChannel>
Status ForwardShape(ShapeContext& c) {
  return VarsShape(c, 1, kPerChannel).status();
}
template <bool kPerChannel>
Status GradientShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape ends, VarsShape(c, 2, kPerChannel));
  c.set_output(1, ends);
  c.set_output(2, ends);
  return absl::OkStatus();
}

template <bool kPerChannel>
Status VarsGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t bits, c.Attr<int64_t>("num_bits"));
  MR_ASSIGN_OR_RETURN(const bool narrow, c.Attr<bool>("narrow_range"));
  Node* node =
      c.AddNode(kPerChannel ? "FakeQuantWithMinMaxVarsPerChannelGradient" : "FakeQuantWithMinMaxVarsGradient",
                {c.grad(), c.input(0), c.input(1), c.input(2)}, {{"num_bits", bits}, {"narrow_range", narrow}});
  if (node == nullptr) return c.status();
  for (int i = 0; i < 3; ++i) c.set_input_grad(i, Endpoint{node, i});
  return absl::OkStatus();
}

MILLRACE_OP(FakeQuantWithMinMaxVars)
    .Summary("Fake quantization in a range given as input.")
    .Input("inputs: float")
    .Input("min: float")
    .Input("max: float")
    .Output("outputs: float")
    .Attr("num_bits: int = 8")
    .Attr("narrow_range: bool = false")
    .Shape(ForwardShape<false>)
    .Gradient(VarsGradient<false>);
MILLRACE_OP(FakeQuantWithMinMaxVarsGradient)
    .Summary("The gradient of FakeQuantWithMinMaxVars for the inputs and both ends of the range.")
    .Input("gradients: float")
    .Input("inputs: float")
    .Input("min: float")
    .Input("max: float")
    .Output("backprops_wrt_input: float")
    .Output("backprop_wrt_min: float")
    .Output("backprop_wrt_max: float")
    .Attr("num_bits: int = 8")
    .Attr("narrow_range: bool = false")
    .Shape(GradientShape<false>)
    .NotDifferentiable();
MILLRACE_OP(FakeQuantWithMinMaxVarsPerChannel)
    .Summary("Fake quantization with one range per channel.")
    .Input("inputs: float")
    .Input("min: float")
    .Input("max: float")
    .Output("outputs: float")
    .Attr("num_bits: int = 8")
    .Attr("narrow_range: bool = false")
    .Shape(ForwardShape<true>)
    .Gradient(VarsGradient<true>);
MILLRACE_OP(FakeQuantWithMinMaxVarsPerChannelGradient)
    .Summary("The gradient of FakeQuantWithMinMaxVarsPerChannel for the inputs and the ends of the ranges.")
    .Input("gradients: float")
    .Input("inputs: float")
    .Input("min: float")
    .Input("max: float")
    .Output("backprops_wrt_input: float")
    .Output("backprop_wrt_min: float")
    .Output("backprop_wrt_max: float")
    .Attr("num_bits: int = 8")
    .Attr("narrow_range: bool = false")
    .Shape(GradientShape<true>)
    .NotDifferentiable();
MILLRACE_KERNEL(FakeQuantWithMinMaxVars, kCpu, FakeQuantWithMinMaxVarsKernel<false>);
MILLRACE_KERNEL(FakeQuantWithMinMaxVarsGradient, kCpu, FakeQuantWithMinMaxVarsGradientKernel<false>);
MILLRACE_KERNEL(FakeQuantWithMinMaxVarsPerChannel, kCpu, FakeQuantWithMinMaxVarsKernel<true>);
MILLRACE_KERNEL(FakeQuantWithMinMaxVarsPerChannelGradient, kCpu, FakeQuantWithMinMaxVarsGradientKernel<true>);

}  // namespace
}  // namespace millrace
