// Pools and their gradients on a GPU. NVRTC reads it as text, behind windows.h; nothing else includes it.
//
// A thread makes one element of a result, in the CPU's order of operations. Images with channels first are images of
// one channel.
#pragma once

namespace millrace {

struct Pool {
  int64_t batch, channels;
  WindowDim dim[3];
};

// The windows or ranges of one pixel of `size`, outermost first.
struct PixelRanges {
  WindowRange z, y, x;

  template <typename Range>
  __device__ PixelRanges(const WindowDim* dim, int64_t pixel, int64_t height, int64_t width, Range range) {
    const int64_t row = pixel / width, plane = row / height;
    z = range(dim[0], plane);
    y = range(dim[1], row - plane * height);
    x = range(dim[2], pixel - row * width);
  }
};
struct WindowOf {
  __device__ WindowRange operator()(const WindowDim& d, int64_t at) const { return RangeAt(d, at); }
};
struct OutputsOf {
  __device__ WindowRange operator()(const WindowDim& d, int64_t at) const { return WindowsWith(d, at); }
};
__device__ inline PixelRanges WindowOfOutput(const Pool& p, int64_t pixel) {
  return PixelRanges(p.dim, pixel, p.dim[1].out, p.dim[2].out, WindowOf());
}
__device__ inline PixelRanges OutputsWithInput(const Pool& p, int64_t pixel) {
  return PixelRanges(p.dim, pixel, p.dim[1].in, p.dim[2].in, OutputsOf());
}

// The first pixel with the greatest value of the window; a NaN is the greatest only if it comes first, as on the CPU.
// `x` is the first pixel's element of the image and channel.
template <typename T>
__device__ inline int64_t LargestPixel(const Pool& p, const PixelRanges& window, const T* x) {
  int64_t best = (window.z.begin * p.dim[1].in + window.y.begin) * p.dim[2].in + window.x.begin;
  auto largest = Widen(x[best * p.channels]);
  for (int64_t z = window.z.begin; z < window.z.end; ++z) {
    for (int64_t y = window.y.begin; y < window.y.end; ++y) {
      const int64_t row = (z * p.dim[1].in + y) * p.dim[2].in;
      for (int64_t at = row + window.x.begin; at < row + window.x.end; ++at) {
        const auto value = Widen(x[at * p.channels]);
        if (!(largest < value)) continue;
        largest = value;
        best = at;
      }
    }
  }
  return best;
}

__device__ inline int64_t GridStride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
__device__ inline int64_t FirstOfThread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// Calls fn(i, image, pixel, channel) for the elements of `n` that are this thread's, of images of `pixels`.
template <typename Fn>
__device__ inline void ForElements(int64_t n, int64_t channels, int64_t pixels, Fn fn) {
  for (int64_t i = FirstOfThread(); i < n; i += GridStride()) {
    const ImageElement e(i, channels, pixels, false);
    fn(i, e.image, e.pixel, e.channel);
  }
}

template <typename T>
__device__ inline void MaxPool(int64_t n, const Pool& p, const T* x, T* y) {
  ForElements(n, p.channels, OutPixels(p.dim), [&](int64_t i, int64_t image, int64_t pixel, int64_t channel) {
    const T* const from = x + image * InPixels(p.dim) * p.channels + channel;
    y[i] = from[LargestPixel(p, WindowOfOutput(p, pixel), from) * p.channels];
  });
}

// Where each output comes from.
template <typename T>
__device__ inline void MaxPoolPixels(int64_t n, const Pool& p, const T* x, int* pixels) {
  ForElements(n, p.channels, OutPixels(p.dim), [&](int64_t i, int64_t image, int64_t pixel, int64_t channel) {
    const T* const from = x + image * InPixels(p.dim) * p.channels + channel;
    pixels[i] = static_cast<int>(LargestPixel(p, WindowOfOutput(p, pixel), from));
  });
}

// An input's gradient is the sum of those of the outputs that come from it.
template <typename T>
__device__ inline void MaxPoolBack(int64_t n, const Pool& p, const int* pixels, const T* dy, T* dx) {
  using C = decltype(Widen(T()));
  ForElements(n, p.channels, InPixels(p.dim), [&](int64_t i, int64_t image, int64_t pixel, int64_t channel) {
    const PixelRanges outputs = OutputsWithInput(p, pixel);
    const int64_t base = image * OutPixels(p.dim) * p.channels + channel;
    C sum = C(0);
    for (int64_t z = outputs.z.begin; z < outputs.z.end; ++z) {
      for (int64_t y = outputs.y.begin; y < outputs.y.end; ++y) {
        const int64_t row = (z * p.dim[1].out + y) * p.dim[2].out;
        for (int64_t at = row + outputs.x.begin; at < row + outputs.x.end; ++at) {
          const int64_t output = base + at * p.channels;
          if (pixels[output] == pixel) sum = sum + Widen(dy[output]);
        }
      }
    }
    dx[i] = Narrow<T>(sum);
  });
}

// The gradient of the gradient.
template <typename T>
__device__ inline void MaxPoolBackBack(int64_t n, const Pool& p, const T* x, const T* grad, T* y) {
  ForElements(n, p.channels, OutPixels(p.dim), [&](int64_t i, int64_t image, int64_t pixel, int64_t channel) {
    const int64_t base = image * InPixels(p.dim) * p.channels + channel;
    y[i] = grad[base + LargestPixel(p, WindowOfOutput(p, pixel), x + base) * p.channels];
  });
}

__device__ inline int64_t SizeOf(const PixelRanges& r) {
  return (r.z.end - r.z.begin) * (r.y.end - r.y.begin) * (r.x.end - r.x.begin);
}

// The mean of the window's pixels that are inside the image.
template <typename T>
__device__ inline void AvgPool(int64_t n, const Pool& p, const T* x, T* y) {
  using C = decltype(Widen(T()));
  ForElements(n, p.channels, OutPixels(p.dim), [&](int64_t i, int64_t image, int64_t pixel, int64_t channel) {
    const PixelRanges window = WindowOfOutput(p, pixel);
    const T* const from = x + image * InPixels(p.dim) * p.channels + channel;
    C sum = C(0);
    for (int64_t column = window.x.begin; column < window.x.end; ++column) {
      C of_column = C(0);
      for (int64_t z = window.z.begin; z < window.z.end; ++z) {
        for (int64_t row = window.y.begin; row < window.y.end; ++row)
          of_column += Widen(from[((z * p.dim[1].in + row) * p.dim[2].in + column) * p.channels]);
      }
      sum += of_column;
    }
    y[i] = Narrow<T>(sum / static_cast<C>(SizeOf(window)));
  });
}

template <typename T>
__device__ inline void AvgPoolBack(int64_t n, const Pool& p, const T* dy, T* dx) {
  using C = decltype(Widen(T()));
  ForElements(n, p.channels, InPixels(p.dim), [&](int64_t i, int64_t image, int64_t pixel, int64_t channel) {
    const PixelRanges outputs = OutputsWithInput(p, pixel);
    const T* const from = dy + image * OutPixels(p.dim) * p.channels + channel;
    C sum = C(0);
    for (int64_t z = outputs.z.begin; z < outputs.z.end; ++z) {
      for (int64_t row = outputs.y.begin; row < outputs.y.end; ++row) {
        for (int64_t column = outputs.x.begin; column < outputs.x.end; ++column) {
          const int64_t at = (z * p.dim[1].out + row) * p.dim[2].out + column;
          sum += Widen(from[at * p.channels]) / static_cast<C>(SizeOf(WindowOfOutput(p, at)));
        }
      }
    }
    dx[i] = Narrow<T>(sum);
  });
}

}  // namespace millrace
