// AvgPool and AvgPool3D: means over windows, of the pixels inside the image.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

AttrList AvgPoolAttrs(GradientContext& c) { return c.CopyAttrs({"ksize", "strides", "padding", "data_format"}); }

Status AvgPoolGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("AvgPoolGrad", {c.Shape(c.input(0)), c.grad()}, AvgPoolAttrs(c)));
  return absl::OkStatus();
}
Status AvgPoolGradGradient(GradientContext& c) {
  c.set_input_grad(1, c.Op("AvgPool", {c.grad()}, AvgPoolAttrs(c)));
  return absl::OkStatus();
}
Status AvgPool3DGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("AvgPool3DGrad", {c.Shape(c.input(0)), c.grad()}, AvgPoolAttrs(c)));
  return absl::OkStatus();
}
Status AvgPool3DGradGradient(GradientContext& c) {
  c.set_input_grad(1, c.Op("AvgPool3D", {c.grad()}, AvgPoolAttrs(c)));
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

template <typename C, typename T>
void AddChannels(const T* __restrict from, int64_t n, C* __restrict to) {
  for (int64_t c = 0; c < n; ++c) to[c] += static_cast<C>(from[c]);
}

// Adds to each output of a row the columns of its window.
template <typename C>
void AddNeighbours(const WindowDim& width, int64_t channels, const C* columns, C* sums) {
  for (int64_t k = 0; k < width.window; ++k) {
    const int64_t shift = k - width.pad_before;
    if (width.stride == 1) {
      const int64_t begin = std::max<int64_t>(0, -shift), end = std::min(width.out, width.in - shift);
      if (begin < end)
        AddChannels(columns + (begin + shift) * channels, (end - begin) * channels, sums + begin * channels);
      continue;
    }
    for (int64_t o = 0; o < width.out; ++o) {
      const int64_t column = o * width.stride + shift;
      if (column >= 0 && column < width.in) AddChannels(columns + column * channels, channels, sums + o * channels);
    }
  }
}

// For each row of the output, sums the image rows of its window first, then adjacent columns of that sum.
template <typename T>
void Average(KernelContext& ctx, const PoolGeometry& g, const T* x, T* y) {
  using C = ComputeType<T>;
  const int64_t in_row = g.dim[2].in * g.channels, out_row = g.dim[2].out * g.channels;
  ForPoolRows(ctx, g, [&](int64_t image, int64_t row) {
    absl::InlinedVector<C, 1024> room(in_row + out_row, C(0));
    C *columns = room.data(), *sums = columns + in_row;
    const WindowRange z = RangeAt(g.dim[0], row / g.dim[1].out), h = RangeAt(g.dim[1], row % g.dim[1].out);
    for (int64_t d = z.begin; d < z.end; ++d) {
      for (int64_t r = h.begin; r < h.end; ++r) {
        AddChannels(x + ((image * g.dim[0].in + d) * g.dim[1].in + r) * in_row, in_row, columns);
      }
    }
    AddNeighbours(g.dim[2], g.channels, columns, sums);
    T* out = y + (image * g.dim[0].out * g.dim[1].out + row) * out_row;
    for (int64_t o = 0; o < g.dim[2].out; ++o) {
      const WindowRange w = RangeAt(g.dim[2], o);
      const C count = static_cast<C>((z.end - z.begin) * (h.end - h.begin) * (w.end - w.begin));
      for (int64_t c = o * g.channels; c < (o + 1) * g.channels; ++c) out[c] = static_cast<T>(sums[c] / count);
    }
  });
}

// Every output distributes its gradient evenly over the pixels of its window. Different rows may add to the same
// pixels, so a piece consists of whole images.
template <typename T>
void AverageBack(KernelContext& ctx, const PoolGeometry& g, const T* dy, T* dx) {
  using C = ComputeType<T>;
  const int64_t size = g.in_pixels() * g.channels;
  ctx.ParallelFor(g.batch, PoolGrain(g), [&](int64_t begin, int64_t end) {
    std::vector<C> share(g.channels);
    std::vector<C> wide(std::is_same_v<T, C> ? 0 : size);
    for (int64_t image = begin; image < end; ++image) {
      T* out = dx + image * size;
      C* sums = std::is_same_v<T, C> ? reinterpret_cast<C*>(out) : wide.data();
      std::fill(sums, sums + size, C(0));
      const T* grad = dy + image * g.out_pixels() * g.channels;
      for (int64_t row = 0; row < g.dim[0].out * g.dim[1].out; ++row) {
        ForPoolRow(g, row, [&](int64_t o, const PoolView& view) {
          const C count = static_cast<C>(view.pixels());
          for (int64_t c = 0; c < g.channels; ++c) share[c] = static_cast<C>(grad[o * g.channels + c]) / count;
          view.ForPixels(g, [&](int64_t pixel) { AddChannels(share.data(), g.channels, sums + pixel * g.channels); });
        });
      }
      if constexpr (!std::is_same_v<T, C>) {
        for (int64_t i = 0; i < size; ++i) out[i] = static_cast<T>(wide[i]);
      }
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
    Shape input;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, AvgPoolGradGeometry(ctx, window_, &input));
    const Tensor& dy = ctx.input(1);
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
MILLRACE_HOST_MEMORY(AvgPoolGrad, "GPU", "orig_input_shape");
MILLRACE_HOST_MEMORY(AvgPool3DGrad, "GPU", "orig_input_shape");

}  // namespace
}  // namespace millrace
