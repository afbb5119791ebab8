// AvgPool and AvgPool3D: means over windows, of the pixels inside the image.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

AttrList SameAttrs(GradientContext& c) {
  AttrList attrs;
  for (const char* name : {"ksize", "strides", "padding", "data_format"}) {
    if (const pb::AttrValue* value = c.node()->FindAttr(name)) attrs.emplace_back(name, *value);
  }
  return attrs;
}

Status AvgPoolGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("AvgPoolGrad", {c.Shape(c.input(0)), c.grad()}, SameAttrs(c)));
  return absl::OkStatus();
}
Status AvgPoolGradGradient(GradientContext& c) {
  c.set_input_grad(1, c.Op("AvgPool", {c.grad()}, SameAttrs(c)));
  return absl::OkStatus();
}
Status AvgPool3DGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("AvgPool3DGrad", {c.Shape(c.input(0)), c.grad()}, SameAttrs(c)));
  return absl::OkStatus();
}
Status AvgPool3DGradGradient(GradientContext& c) {
  c.set_input_grad(1, c.Op("AvgPool3D", {c.grad()}, SameAttrs(c)));
  return absl::OkStatus();
}

MILLRACE_OP(AvgPool)
    .Summary("Means over 2-D windows.")
    .Input("value: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(PoolShape)
    .Gradient(AvgPoolGradient);

MILLRACE_OP(AvgPoolGrad)
    .Summary("The gradient of AvgPool.")
    .Input("orig_input_shape: int32")
    .Input("grad: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(PoolSizesShape)
    .Gradient(AvgPoolGradGradient);

MILLRACE_OP(AvgPool3D)
    .Summary("Means over 3-D windows.")
    .Input("input: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 5")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(PoolShape)
    .Gradient(AvgPool3DGradient);

MILLRACE_OP(AvgPool3DGrad)
    .Summary("The gradient of AvgPool3D.")
    .Input("orig_input_shape: int32")
    .Input("grad: T")
    .Output("output: T")
    .Attr("ksize: list(int) >= 5")
    .Attr("strides: list(int) >= 5")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(PoolSizesShape)
    .Gradient(AvgPool3DGradGradient);

template <typename T>
void Average(KernelContext& ctx, const PoolGeometry& g, const T* x, T* y) {
  using C = ComputeType<T>;
  ctx.ParallelFor(g.batch, PoolGrain(g), [&](int64_t begin, int64_t end) {
    std::vector<C> sums(g.channels);
    for (int64_t image = begin; image < end; ++image) {
      const T* in = x + image * g.in_pixels() * g.channels;
      T* out = y + image * g.out_pixels() * g.channels;
      for (int64_t o = 0; o < g.out_pixels(); ++o, out += g.channels) {
        std::fill(sums.begin(), sums.end(), C(0));
        int64_t count = 0;
        ForWindow(g, o, [&](int64_t pixel) {
          const T* from = in + pixel * g.channels;
          for (int64_t c = 0; c < g.channels; ++c) sums[c] += static_cast<C>(from[c]);
          ++count;
        });
        for (int64_t c = 0; c < g.channels; ++c) out[c] = static_cast<T>(sums[c] / static_cast<C>(count));
      }
    }
  });
}

// Every output spreads its gradient evenly over the pixels it saw.
template <typename T>
void AverageBack(KernelContext& ctx, const PoolGeometry& g, const T* dy, T* dx) {
  using C = ComputeType<T>;
  const int64_t size = g.in_pixels() * g.channels;
  ctx.ParallelFor(g.batch, PoolGrain(g), [&](int64_t begin, int64_t end) {
    std::vector<C> wide(size), share(g.channels);
    for (int64_t image = begin; image < end; ++image) {
      std::fill(wide.begin(), wide.end(), C(0));
      const T* grad = dy + image * g.out_pixels() * g.channels;
      for (int64_t o = 0; o < g.out_pixels(); ++o, grad += g.channels) {
        int64_t count = 0;
        ForWindow(g, o, [&](int64_t) { ++count; });
        for (int64_t c = 0; c < g.channels; ++c) share[c] = static_cast<C>(grad[c]) / static_cast<C>(count);
        ForWindow(g, o, [&](int64_t pixel) {
          C* to = wide.data() + pixel * g.channels;
          for (int64_t c = 0; c < g.channels; ++c) to[c] += share[c];
        });
      }
      T* out = dx + image * size;
      for (int64_t i = 0; i < size; ++i) out[i] = static_cast<T>(wide[i]);
    }
  });
}

class AvgPoolKernel : public Kernel {
 public:
  explicit AvgPoolKernel(KernelInit& init) : window_(init) {
    if (!DispatchType(FloatTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, window_.Get(ctx, 1));
    Shape out;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(attrs, x.shape(), &out));
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, out));
    DispatchType(FloatTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Average<T>(ctx, g, x.data<T>(), y->data<T>());
    });
    return absl::OkStatus();
  }

 private:
  const PoolWindow window_;
};

class AvgPoolGradKernel : public Kernel {
 public:
  explicit AvgPoolGradKernel(KernelInit& init) : window_(init) {
    if (!DispatchType(FloatTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& sizes = ctx.input(0);
    const Tensor& dy = ctx.input(1);
    if (sizes.rank() != 1) {
      return InvalidArgument("orig_input_shape must be a vector, but has shape ", sizes.shape().ToString());
    }
    Shape::Dims dims(sizes.flat<int32_t>().begin(), sizes.flat<int32_t>().end());
    MR_ASSIGN_OR_RETURN(const Shape input, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, window_.Get(ctx, 2));
    Shape out;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(attrs, input, &out));
    if (dy.shape() != out) {
      return InvalidArgument("the gradient must have shape ", out.ToString(), " for an input of shape ",
                             input.ToString(), ", but has ", dy.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, input));
    DispatchType(FloatTypes{}, dy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      AverageBack<T>(ctx, g, dy.data<T>(), dx->data<T>());
    });
    return absl::OkStatus();
  }

 private:
  const PoolWindow window_;
};

MILLRACE_KERNEL(AvgPool, kCpu, AvgPoolKernel);
MILLRACE_KERNEL(AvgPoolGrad, kCpu, AvgPoolGradKernel);
MILLRACE_KERNEL(AvgPool3D, kCpu, AvgPoolKernel);
MILLRACE_KERNEL(AvgPool3DGrad, kCpu, AvgPoolGradKernel);

}  // namespace
}  // namespace millrace
