// The maximum of each window and its position, shared by all MaxPool ops.
#pragma once

#include <algorithm>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "millrace/ops/kernels/vec.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

// Loops over channels, in separate functions so that the compiler knows that their length does not change.
namespace pool {
template <typename T>
inline void TakeLarger(const T* __restrict from, int64_t n, T* __restrict out) {
  for (int64_t c = 0; c < n; ++c) out[c] = out[c] < from[c] ? from[c] : out[c];
}
template <typename T>
inline void TakeLarger(const T* __restrict from, int32_t pixel, int64_t n, T* __restrict largest,
                       int32_t* __restrict pixels) {
  for (int64_t c = 0; c < n; ++c) {
    const T value = from[c], best = largest[c];
    const int32_t at = pixels[c];
    const bool better = best < value;
    largest[c] = better ? value : best;
    pixels[c] = better ? pixel : at;
  }
}
// to = or += grad where `pixels` is `pixel`.
template <bool kAdd, typename T>
inline void Give(const T* __restrict grad, const int32_t* __restrict pixels, int32_t pixel, int64_t n,
                 T* __restrict to) {
  for (int64_t c = 0; c < n; ++c) {
    const T value = grad[c];
    const T given = pixels[c] == pixel ? value : T(0);
    to[c] = kAdd ? static_cast<T>(to[c] + given) : given;
  }
}

// Distributes one output's gradient to the pixels of its window, kVec channels at a time in registers. `pixels` lists
// them; x and dx point to the image.
template <bool kAdd>
inline void GiveToLargest(const float* x, const float* grad, absl::Span<const int32_t> pixels, int64_t channels,
                          float* dx) {
  using Mask = decltype(Vec{} < Vec{});
  for (int64_t c = 0; c < channels; c += kVec) {
    Vec largest = Load(x + pixels[0] * channels + c);
    Mask at = {};
    for (int i = 1; i < static_cast<int>(pixels.size()); ++i) {
      const Vec value = Load(x + pixels[i] * channels + c);
      const Mask better = largest < value;
      largest = better ? value : largest;
      at = better ? Mask{} + i : at;
    }
    const Vec dy = Load(grad + c);
    for (int i = 0; i < static_cast<int>(pixels.size()); ++i) {
      float* to = dx + pixels[i] * channels + c;
      const Vec given = at == Mask{} + i ? dy : Vec{};
      Store(to, kAdd ? Load(to) + given : given);
    }
  }
}
}  // namespace pool

template <typename T>
void LargestInWindows(KernelContext& ctx, const PoolGeometry& g, const T* x, T* y) {
  ForPoolRows(ctx, g, [&](int64_t image, int64_t row) {
    const T* in = x + image * g.in_pixels() * g.channels;
    T* images = y + image * g.out_pixels() * g.channels;
    ForPoolRow(g, row, [&](int64_t o, const PoolView& view) {
      T* __restrict out = images + o * g.channels;
      bool first = true;
      view.ForPixels(g, [&](int64_t pixel) {
        const T* __restrict from = in + pixel * g.channels;
        if (first) {
          std::copy(from, from + g.channels, out);
          first = false;
          return;
        }
        pool::TakeLarger(from, g.channels, out);
      });
    });
  });
}

// For one output: the index of the maximum pixel per channel; the first one in case of a tie. Not inlined, because it
// has many callers for each type.
template <typename T>
[[gnu::noinline]] void LargestPixels(const PoolGeometry& g, const T* image, const PoolView& view, T* __restrict largest,
                                     int32_t* __restrict pixels) {
  bool first = true;
  view.ForPixels(g, [&](int64_t at) {
    const T* __restrict from = image + at * g.channels;
    const int32_t pixel = static_cast<int32_t>(at);
    if (first) {
      std::copy(from, from + g.channels, largest);
      std::fill(pixels, pixels + g.channels, pixel);
      first = false;
      return;
    }
    pool::TakeLarger(from, pixel, g.channels, largest, pixels);
  });
}

// Storage for the result of LargestPixels, without allocation for the usual numbers of channels.
template <typename T>
struct Largest {
  explicit Largest(int64_t channels) : values(channels), pixels(channels) {}
  absl::InlinedVector<T, 128> values;
  absl::InlinedVector<int32_t, 128> pixels;
};

// Calls fn(image, o, largest, pixels) for every output, on any thread.
template <typename T, typename Fn>
void ForLargest(KernelContext& ctx, const PoolGeometry& g, const T* x, Fn fn) {
  ForPoolRows(ctx, g, [&](int64_t image, int64_t row) {
    Largest<T> found(g.channels);
    ForPoolRow(g, row, [&](int64_t o, const PoolView& view) {
      LargestPixels(g, x + image * g.in_pixels() * g.channels, view, found.values.data(), found.pixels.data());
      fn(image, o, found.values.data(), found.pixels.data());
    });
  });
}

// True if every pixel is in exactly one window.
inline bool WindowsCoverOnce(const PoolGeometry& g) {
  return std::all_of(g.dim.begin(), g.dim.end(), [](const WindowDim& d) {
    return d.stride == d.window && d.pad_before == 0 && d.in == d.out * d.window;
  });
}

// dx = 0, then dx[largest] += dy.
template <typename T>
void LargestBack(KernelContext& ctx, const PoolGeometry& g, const T* x, const T* dy, T* dx) {
  const int64_t in_size = g.in_pixels() * g.channels;
  const bool once = WindowsCoverOnce(g);
  constexpr int64_t kMostListed = 64;
  const auto back_row = [&](int64_t image, int64_t row) {
    Largest<T> found(g.channels);
    const T* in = x + image * in_size;
    T* out = dx + image * in_size;
    ForPoolRow(g, row, [&](int64_t o, const PoolView& view) {
      const T* __restrict grad = dy + (image * g.out_pixels() + o) * g.channels;
      if constexpr (std::is_same_v<T, float>) {
        if (g.channels % kVec == 0 && view.pixels() <= kMostListed) {
          int32_t seen[kMostListed];
          int n = 0;
          view.ForPixels(g, [&](int64_t at) { seen[n++] = static_cast<int32_t>(at); });
          if (n == 0) return;
          return once ? pool::GiveToLargest<false>(in, grad, {seen, static_cast<size_t>(n)}, g.channels, out)
                      : pool::GiveToLargest<true>(in, grad, {seen, static_cast<size_t>(n)}, g.channels, out);
        }
      }
      LargestPixels(g, in, view, found.values.data(), found.pixels.data());
      const int32_t* __restrict pixels = found.pixels.data();
      view.ForPixels(g, [&](int64_t at) {
        T* __restrict to = out + at * g.channels;
        const int32_t pixel = static_cast<int32_t>(at);
        if (once) {
          pool::Give<false>(grad, pixels, pixel, g.channels, to);
        } else {
          pool::Give<true>(grad, pixels, pixel, g.channels, to);
        }
      });
    });
  };
  if (once) return ForPoolRows(ctx, g, back_row);
  // Different rows of outputs may add to the same pixels, so a piece consists of whole images.
  ctx.ParallelFor(g.batch, PoolGrain(g), [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      std::fill(dx + image * in_size, dx + (image + 1) * in_size, T(0));
      for (int64_t row = 0; row < g.dim[0].out * g.dim[1].out; ++row) back_row(image, row);
    }
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

// MaxPool and its variants for a list of types. Images of more than 2^31 - 1 pixels are rejected.
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
    Shape shape;
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, MaxPoolGradGeometry(ctx, window_, kSecond, &shape));
    MR_ASSIGN_OR_RETURN(Tensor * result, ctx.AllocateOutput(0, shape));
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
