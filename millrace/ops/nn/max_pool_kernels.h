// The largest element of each window and where it is: what all MaxPool ops share.
#pragma once

#include <limits>

#include "millrace/ops/nn/blockwise.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

template <typename T>
void LargestInWindows(KernelContext& ctx, const PoolGeometry& g, const T* x, T* y) {
  ctx.ParallelFor(g.batch, PoolGrain(g), [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      const T* in = x + image * g.in_pixels() * g.channels;
      T* out = y + image * g.out_pixels() * g.channels;
      for (int64_t o = 0; o < g.out_pixels(); ++o, out += g.channels) {
        bool first = true;
        ForWindow(g, o, [&](int64_t pixel) {
          const T* from = in + pixel * g.channels;
          if (first) {
            std::copy(from, from + g.channels, out);
            first = false;
            return;
          }
          for (int64_t c = 0; c < g.channels; ++c) out[c] = out[c] < from[c] ? from[c] : out[c];
        });
      }
    }
  });
}

// For output pixel `o` of one image: the number of the pixel with the largest element, by channel; the
// first among equals.
template <typename T>
void LargestPixels(const PoolGeometry& g, const T* image, int64_t o, T* largest, int32_t* pixels) {
  bool first = true;
  ForWindow(g, o, [&](int64_t pixel) {
    const T* from = image + pixel * g.channels;
    if (first) {
      std::copy(from, from + g.channels, largest);
      std::fill(pixels, pixels + g.channels, static_cast<int32_t>(pixel));
      first = false;
      return;
    }
    for (int64_t c = 0; c < g.channels; ++c) {
      const bool better = largest[c] < from[c];
      largest[c] = better ? from[c] : largest[c];
      pixels[c] = better ? static_cast<int32_t>(pixel) : pixels[c];
    }
  });
}

// Calls fn(image, o, pixels) for every output pixel; pieces are whole images, so that fn may add to the
// image's gradient.
template <typename T, typename Fn>
void ForLargest(KernelContext& ctx, const PoolGeometry& g, const T* x, Fn fn) {
  ctx.ParallelFor(g.batch, PoolGrain(g), [&](int64_t begin, int64_t end) {
    std::vector<T> largest(g.channels);
    std::vector<int32_t> pixels(g.channels);
    for (int64_t image = begin; image < end; ++image) {
      for (int64_t o = 0; o < g.out_pixels(); ++o) {
        LargestPixels(g, x + image * g.in_pixels() * g.channels, o, largest.data(), pixels.data());
        fn(image, o, largest.data(), pixels.data());
      }
    }
  });
}

// dx = 0, then dx[largest] += dy.
template <typename T>
void LargestBack(KernelContext& ctx, const PoolGeometry& g, const T* x, const T* dy, T* dx) {
  const int64_t in_size = g.in_pixels() * g.channels;
  std::fill(dx, dx + g.batch * in_size, T(0));
  ForLargest(ctx, g, x, [&](int64_t image, int64_t o, const T*, const int32_t* pixels) {
    const T* grad = dy + (image * g.out_pixels() + o) * g.channels;
    T* out = dx + image * in_size;
    for (int64_t c = 0; c < g.channels; ++c) out[pixels[c] * g.channels + c] += grad[c];
  });
}

// y = grad[largest]: the gradient of the gradient.
template <typename T>
void LargestBackBack(KernelContext& ctx, const PoolGeometry& g, const T* x, const T* grad, T* y) {
  ForLargest(ctx, g, x, [&](int64_t image, int64_t o, const T*, const int32_t* pixels) {
    const T* in = grad + image * g.in_pixels() * g.channels;
    T* out = y + (image * g.out_pixels() + o) * g.channels;
    for (int64_t c = 0; c < g.channels; ++c) out[c] = in[pixels[c] * g.channels + c];
  });
}

// MaxPool and its kin for a list of types. Images of more pixels than int32 counts are refused.
template <typename TypeList>
class MaxPoolKernel : public Kernel {
 public:
  explicit MaxPoolKernel(KernelInit& init) : window_(init) {
    if (!DispatchType(TypeList{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, window_.Get(ctx, 1));
    Shape out;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(attrs, x.shape(), &out));
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, out));
    if (out.num_elements() == 0) return absl::OkStatus();
    DispatchType(TypeList{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LargestInWindows<T>(ctx, g, x.data<T>(), y->data<T>());
    });
    return absl::OkStatus();
  }

 private:
  const PoolWindow window_;
};

// MaxPoolGrad (kSecond false): inputs x, y, dy. MaxPoolGradGrad (true): inputs x, y, gradient of dx.
template <typename TypeList, bool kSecond>
class MaxPoolGradKernel : public Kernel {
 public:
  explicit MaxPoolGradKernel(KernelInit& init) : window_(init) {
    if (!DispatchType(TypeList{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
    if (init.input_type(0) != init.output_type(0)) FailDType(init, init.input_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& grad = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const WindowAttrs attrs, window_.Get(ctx, 3));
    Shape out;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(attrs, x.shape(), &out));
    const Shape& wanted = kSecond ? x.shape() : out;
    if (ctx.input(1).shape() != out || grad.shape() != wanted) {
      return InvalidArgument("for an input of shape ", x.shape().ToString(), ", orig_output must have shape ",
                             out.ToString(), " and the gradient ", wanted.ToString(), ", but they have ",
                             ctx.input(1).shape().ToString(), " and ", grad.shape().ToString());
    }
    if (g.in_pixels() > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("images of ", g.in_pixels(), " pixels are too large");
    }
    MR_ASSIGN_OR_RETURN(Tensor * result, ctx.AllocateOutput(0, kSecond ? out : x.shape()));
    DispatchType(TypeList{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (kSecond) {
        LargestBackBack<T>(ctx, g, x.data<T>(), grad.data<T>(), result->data<T>());
      } else {
        LargestBack<T>(ctx, g, x.data<T>(), grad.data<T>(), result->data<T>());
      }
    });
    return absl::OkStatus();
  }

 private:
  const PoolWindow window_;
};

}  // namespace millrace
