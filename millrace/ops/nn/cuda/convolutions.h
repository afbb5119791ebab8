// Convolutions and their gradients on a GPU, for those that cuDNN has no engine for. NVRTC reads it as text, behind
// columns.h and windows.h; nothing else includes it.
//
// A thread makes one element of a result; the filter's elements, which are few and long sums, are made by columns.
#pragma once

namespace millrace {

// As ops/nn/convolution.h has it: the filter is [spatial..., in_channels / groups, out_channels].
struct Convolution {
  int64_t batch, in_channels, out_channels, groups;
  int channels_first;
  WindowDim dim[3];

  __device__ int64_t group_in() const { return in_channels / groups; }
  __device__ int64_t group_out() const { return out_channels / groups; }
  __device__ int64_t InputAt(int64_t image, int64_t pixel, int64_t channel) const {
    return ElementAt(image, pixel, channel, in_channels, InPixels(dim), channels_first != 0);
  }
  __device__ int64_t OutputAt(int64_t image, int64_t pixel, int64_t channel) const {
    return ElementAt(image, pixel, channel, out_channels, OutPixels(dim), channels_first != 0);
  }
};

// A place along three dimensions.
struct Place {
  int64_t at[3];
  __device__ Place(int64_t i, int64_t height, int64_t width) {
    const int64_t row = i / width;
    at[2] = i - row * width;
    at[0] = row / height;
    at[1] = row - at[0] * height;
  }
};

// Where tap `tap` of the window of output `out` reads, or -1 outside of the image.
__device__ inline int64_t TapOfOutput(const WindowDim& d, int64_t out, int64_t tap) {
  const int64_t at = out * d.stride - d.pad_before + tap * d.dilation;
  return at >= 0 && at < d.in ? at : -1;
}
// The output whose tap `tap` reads input `in`, or -1.
__device__ inline int64_t OutputOfTap(const WindowDim& d, int64_t in, int64_t tap) {
  const int64_t shifted = in + d.pad_before - tap * d.dilation;
  if (shifted < 0 || shifted % d.stride != 0) return -1;
  const int64_t out = shifted / d.stride;
  return out < d.out ? out : -1;
}

// Calls fn(tap, pixel) for each tap of the window where along(dim, place, tap) of all dimensions is inside; `pixel` is
// of an image of height x width.
template <typename Along, typename Fn>
__device__ inline void ForTaps(const Convolution& g, const Place& place, int64_t height, int64_t width, Along along,
                               Fn fn) {
  int64_t tap = 0;
  for (int64_t kz = 0; kz < g.dim[0].window; ++kz) {
    const int64_t z = along(g.dim[0], place.at[0], kz);
    for (int64_t ky = 0; ky < g.dim[1].window; ++ky) {
      const int64_t y = along(g.dim[1], place.at[1], ky);
      for (int64_t kx = 0; kx < g.dim[2].window; ++kx, ++tap) {
        const int64_t x = along(g.dim[2], place.at[2], kx);
        if (z >= 0 && y >= 0 && x >= 0) fn(tap, (z * height + y) * width + x);
      }
    }
  }
}
struct ReadByOutput {
  __device__ int64_t operator()(const WindowDim& d, int64_t out, int64_t tap) const { return TapOfOutput(d, out, tap); }
};
struct WrittenFromInput {
  __device__ int64_t operator()(const WindowDim& d, int64_t in, int64_t tap) const { return OutputOfTap(d, in, tap); }
};

template <typename T>
__device__ inline void ConvolutionForward(int64_t n, const Convolution& g, const T* x, const T* w, T* y) {
  using C = decltype(Widen(T()));
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    const ImageElement e(i, g.out_channels, OutPixels(g.dim), g.channels_first != 0);
    const int64_t first = e.channel / g.group_out() * g.group_in();
    C sum = C(0);
    ForTaps(g, Place(e.pixel, g.dim[1].out, g.dim[2].out), g.dim[1].in, g.dim[2].in, ReadByOutput(),
            [&](int64_t tap, int64_t pixel) {
              for (int64_t c = 0; c < g.group_in(); ++c) {
                sum += Widen(x[g.InputAt(e.image, pixel, first + c)]) *
                       Widen(w[(tap * g.group_in() + c) * g.out_channels + e.channel]);
              }
            });
    y[i] = Narrow<T>(sum);
  }
}

template <typename T>
__device__ inline void ConvolutionInput(int64_t n, const Convolution& g, const T* w, const T* dy, T* dx) {
  using C = decltype(Widen(T()));
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    const ImageElement e(i, g.in_channels, InPixels(g.dim), g.channels_first != 0);
    const int64_t group = e.channel / g.group_in(), in_group = e.channel - group * g.group_in();
    C sum = C(0);
    ForTaps(g, Place(e.pixel, g.dim[1].in, g.dim[2].in), g.dim[1].out, g.dim[2].out, WrittenFromInput(),
            [&](int64_t tap, int64_t pixel) {
              for (int64_t c = group * g.group_out(); c < (group + 1) * g.group_out(); ++c) {
                sum += Widen(dy[g.OutputAt(e.image, pixel, c)]) *
                       Widen(w[(tap * g.group_in() + in_group) * g.out_channels + c]);
              }
            });
    dx[i] = Narrow<T>(sum);
  }
}

// Column: an element of the filter; its elements: the pixels of all outputs.
template <typename T>
struct FilterSumOf {
  using C = decltype(Widen(T()));
  Convolution g;
  const T *x, *dy;
  __device__ ColumnSum<C> operator()(int64_t column, int64_t begin, int64_t end, int64_t step) const {
    const int64_t row = column / g.out_channels, out_channel = column - row * g.out_channels;
    const int64_t tap = row / g.group_in();
    const int64_t in_channel = out_channel / g.group_out() * g.group_in() + (row - tap * g.group_in());
    const Place taps(tap, g.dim[1].window, g.dim[2].window);
    ColumnSum<C> acc;
    for (int64_t i = begin; i < end; i += step) {
      const int64_t image = i / OutPixels(g.dim), pixel = i - image * OutPixels(g.dim);
      const Place out(pixel, g.dim[1].out, g.dim[2].out);
      int64_t from = 0;
      bool inside = true;
      for (int d = 0; d < 3; ++d) {
        const int64_t at = TapOfOutput(g.dim[d], out.at[d], taps.at[d]);
        inside = inside && at >= 0;
        from = from * g.dim[d].in + at;
      }
      if (inside)
        acc.sum += Widen(x[g.InputAt(image, from, in_channel)]) * Widen(dy[g.OutputAt(image, pixel, out_channel)]);
    }
    return acc;
  }
};
template <typename T>
struct StoreFilter {
  T* dw;
  template <typename Sum>
  __device__ void operator()(int64_t, int64_t column, const Sum& acc) const {
    dw[column] = Narrow<T>(acc.sum);
  }
};

}  // namespace millrace
