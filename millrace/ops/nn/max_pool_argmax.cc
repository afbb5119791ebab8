// MaxPoolWithArgmax: the maximum of each window and its position, and the gradient by position.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/nn/max_pool_kernels.h"

namespace millrace {
namespace {

Status WithArgmaxGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MaxPoolGradWithArgmax", {c.input(0), c.grad(0), c.output(1)},
                           c.CopyAttrs({"ksize", "strides", "padding", "include_batch_in_index"})));
  return absl::OkStatus();
}

MILLRACE_OP(MaxPoolWithArgmax)
    .Summary("The largest element of each 2-D window, and its index in the flattened image or batch.")
    .Input("input: T")
    .Output("output: T")
    .Output("argmax: Targmax")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("Targmax: {int32, int64} = int64")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("include_batch_in_index: bool = false")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Shape(PoolShape)
    .Gradient(WithArgmaxGradient);

MILLRACE_OP(MaxPoolGradWithArgmax)
    .Summary("The gradient of MaxPoolWithArgmax.")
    .Input("input: T")
    .Input("grad: T")
    .Input("argmax: Targmax")
    .Output("output: T")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID'}")
    .Attr("include_batch_in_index: bool = false")
    .Attr("Targmax: {int32, int64}")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Shape(PoolInputShape)
    .NotDifferentiable();

class MaxPoolWithArgmaxKernel : public Kernel {
 public:
  explicit MaxPoolWithArgmaxKernel(KernelInit& init) : window_(init) {
    init.Attr("include_batch_in_index", &include_batch_);
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, window_.Get(ctx, 1));
    Shape out;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(attrs, x.shape(), &out));
    if (x.num_elements() > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("the input of shape ", x.shape().ToString(), " is too large for an argmax");
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, out));
    MR_ASSIGN_OR_RETURN(Tensor * argmax, ctx.AllocateOutput(1, out));
    DispatchType(RealTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchType(IndexTypes{}, argmax->dtype(),
                   [&](auto index) { Run<T, typename decltype(index)::type>(ctx, g, x, y, argmax); });
    });
    return absl::OkStatus();
  }

 private:
  template <typename T, typename I>
  void Run(KernelContext& ctx, const PoolGeometry& g, const Tensor& x, Tensor* y, Tensor* argmax) const {
    T* values = y->data<T>();
    I* places = argmax->data<I>();
    ForLargest(ctx, g, x.data<T>(), [&](int64_t image, int64_t o, const T* largest, const int32_t* pixels) {
      const int64_t at = (image * g.out_pixels() + o) * g.channels;
      const int64_t base = include_batch_ ? image * g.in_pixels() * g.channels : 0;
      std::copy(largest, largest + g.channels, values + at);
      for (int64_t c = 0; c < g.channels; ++c) {
        places[at + c] = static_cast<I>(base + pixels[c] * g.channels + c);
      }
    });
  }

  const PoolWindow window_;
  bool include_batch_ = false;
};

class MaxPoolGradWithArgmaxKernel : public Kernel {
 public:
  explicit MaxPoolGradWithArgmaxKernel(KernelInit& init) {
    init.Attr("include_batch_in_index", &include_batch_);
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& grad = ctx.input(1);
    const Tensor& argmax = ctx.input(2);
    if (x.rank() != 4 || grad.rank() != 4 || argmax.shape() != grad.shape() || grad.dim(0) != x.dim(0)) {
      return InvalidArgument("input, gradient and argmax must be images of one batch, the last two of one ",
                             "shape, but have shapes ", x.shape().ToString(), ", ", grad.shape().ToString(), " and ",
                             argmax.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, x.shape()));
    Status status;
    DispatchType(RealTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchType(IndexTypes{}, argmax.dtype(),
                   [&](auto index) { status = Run<T, typename decltype(index)::type>(grad, argmax, dx); });
    });
    return status;
  }

 private:
  template <typename T, typename I>
  Status Run(const Tensor& grad, const Tensor& argmax, Tensor* dx) const {
    T* out = dx->data<T>();
    std::fill(out, out + dx->num_elements(), T(0));
    const int64_t batch = dx->dim(0);
    if (batch == 0) return absl::OkStatus();
    const int64_t size = dx->num_elements() / batch, per_image = grad.num_elements() / batch;
    for (int64_t i = 0; i < grad.num_elements(); ++i) {
      const int64_t image = i / per_image;
      const int64_t at = argmax.data<I>()[i] + (include_batch_ ? 0 : image * size);
      // The argmax must be within its own image.
      if (at < image * size || at >= (image + 1) * size) {
        return InvalidArgument("argmax ", i, " is ", argmax.data<I>()[i], ", outside image ", image,
                               " of an input of shape ", dx->shape().ToString());
      }
      out[at] += grad.data<T>()[i];
    }
    return absl::OkStatus();
  }

  bool include_batch_ = false;
};

MILLRACE_KERNEL(MaxPoolWithArgmax, kCpu, MaxPoolWithArgmaxKernel);
MILLRACE_KERNEL(MaxPoolGradWithArgmax, kCpu, MaxPoolGradWithArgmaxKernel);

}  // namespace
}  // namespace millrace
