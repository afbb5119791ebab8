// Convolutions in plain loops: every output element is summed in one fixed order by one thread.
#include "millrace/ops/nn/convolution.h"

namespace millrace::conv {
namespace {

// The number of multiplications that are worth another thread.
constexpr int64_t kGrain = 1 << 17;

// The strides between pixels and between channels, in elements.
struct Layout {
  int64_t image, pixel, channel;
};

Layout LayoutOf(bool channels_first, int64_t pixels, int64_t channels) {
  if (channels_first) return {pixels * channels, 1, pixels};
  return {pixels * channels, channels, 1};
}

int64_t PieceOf(double work_per_item) {
  return std::max<int64_t>(1, static_cast<int64_t>(kGrain / std::max(work_per_item, 1.0)));
}

// The input position of window element k for output o; false if it is outside the image.
bool InputAt(const WindowDim& d, int64_t o, int64_t k, int64_t* in) {
  *in = o * d.stride + k * d.dilation - d.pad_before;
  return *in >= 0 && *in < d.in;
}

// The output that uses input i as window element k; false if there is none.
bool OutputAt(const WindowDim& d, int64_t i, int64_t k, int64_t* out) {
  const int64_t at = i + d.pad_before - k * d.dilation;
  if (at < 0 || at % d.stride != 0) return false;
  *out = at / d.stride;
  return *out < d.out;
}

template <typename T>
struct Loops {
  const ConvGeometry& g;
  const Layout in = LayoutOf(g.channels_first, g.in_pixels(), g.in_channels);
  const Layout out = LayoutOf(g.channels_first, g.out_pixels(), g.out_channels);
  const int64_t group_in = g.filter_inputs();
  const int64_t group_out = g.out_channels / g.groups;

  // y[oc] += x[ic] * f[ic, oc] over the channels of one pixel.
  void AddPixel(const T* x, const T* f, T* y) const {
    if (group_in == 1) {
      for (int64_t c = 0; c < g.in_channels; ++c) {
        const T v = x[c * in.channel];
        for (int64_t m = 0; m < group_out; ++m) {
          y[(c * group_out + m) * out.channel] += v * f[c * group_out + m];
        }
      }
      return;
    }
    for (int64_t group = 0; group < g.groups; ++group) {
      T* to = y + group * group_out * out.channel;
      for (int64_t c = 0; c < group_in; ++c) {
        const T v = x[(group * group_in + c) * in.channel];
        const T* row = f + c * g.out_channels + group * group_out;
        if (out.channel == 1) {
          for (int64_t o = 0; o < group_out; ++o) to[o] += v * row[o];
        } else {
          for (int64_t o = 0; o < group_out; ++o) to[o * out.channel] += v * row[o];
        }
      }
    }
  }

  // x[ic] += sum of y[oc] * f[ic, oc].
  void AddPixelBack(const T* y, const T* f, T* x) const {
    for (int64_t c = 0; c < g.in_channels; ++c) {
      const int64_t group = c / group_in;
      const T* row = f + (c % group_in) * g.out_channels + group * group_out;
      const T* from = y + group * group_out * out.channel;
      T sum = 0;
      for (int64_t o = 0; o < group_out; ++o) sum += from[o * out.channel] * row[o];
      x[c * in.channel] += sum;
    }
  }

  void Forward(const T* x, const T* f, T* y, int64_t image, int64_t od, int64_t oh) const {
    const auto& [depth, height, width] = g.dim;
    for (int64_t ow = 0; ow < width.out; ++ow) {
      T* pixel = y + image * out.image + ((od * height.out + oh) * width.out + ow) * out.pixel;
      for (int64_t c = 0; c < g.out_channels; ++c) pixel[c * out.channel] = T(0);
      int64_t d, h, w;
      for (int64_t kd = 0; kd < depth.window; ++kd) {
        if (!InputAt(depth, od, kd, &d)) continue;
        for (int64_t kh = 0; kh < height.window; ++kh) {
          if (!InputAt(height, oh, kh, &h)) continue;
          for (int64_t kw = 0; kw < width.window; ++kw) {
            if (!InputAt(width, ow, kw, &w)) continue;
            const int64_t k = (kd * height.window + kh) * width.window + kw;
            AddPixel(x + image * in.image + ((d * height.in + h) * width.in + w) * in.pixel,
                     f + k * group_in * g.out_channels, pixel);
          }
        }
      }
    }
  }

  // The same for depthwise convolutions with channels last: a row of the input is first expanded to the output's
  // channels (in `room`), after which one loop handles all channels of a pixel.
  void ForwardDepthwise(const T* x, const T* f, T* y, int64_t image, int64_t od, int64_t oh, T* room) const {
    const auto& [depth, height, width] = g.dim;
    const int64_t channels = g.out_channels;
    T* const row = y + image * out.image + (od * height.out + oh) * width.out * channels;
    std::fill_n(row, width.out * channels, T(0));
    int64_t d, h, w;
    for (int64_t kd = 0; kd < depth.window; ++kd) {
      if (!InputAt(depth, od, kd, &d)) continue;
      for (int64_t kh = 0; kh < height.window; ++kh) {
        if (!InputAt(height, oh, kh, &h)) continue;
        const T* from = x + image * in.image + (d * height.in + h) * width.in * g.in_channels;
        if (group_out > 1) {
          for (int64_t i = 0; i < width.in * g.in_channels; ++i) std::fill_n(room + i * group_out, group_out, from[i]);
          from = room;
        }
        const T* const filters = f + (kd * height.window + kh) * width.window * channels;
        for (int64_t ow = 0; ow < width.out; ++ow) {
          for (int64_t kw = 0; kw < width.window; ++kw) {
            if (!InputAt(width, ow, kw, &w)) continue;
            AddProducts(from + w * channels, filters + kw * channels, row + ow * channels, channels);
          }
        }
      }
    }
  }

  static void AddProducts(const T* __restrict a, const T* __restrict b, T* __restrict sum, int64_t n) {
    for (int64_t i = 0; i < n; ++i) sum[i] += a[i] * b[i];
  }

  void BackwardInput(const T* f, const T* dy, T* dx, int64_t image, int64_t d, int64_t h) const {
    const auto& [depth, height, width] = g.dim;
    for (int64_t w = 0; w < width.in; ++w) {
      T* pixel = dx + image * in.image + ((d * height.in + h) * width.in + w) * in.pixel;
      for (int64_t c = 0; c < g.in_channels; ++c) pixel[c * in.channel] = T(0);
      int64_t od, oh, ow;
      for (int64_t kd = 0; kd < depth.window; ++kd) {
        if (!OutputAt(depth, d, kd, &od)) continue;
        for (int64_t kh = 0; kh < height.window; ++kh) {
          if (!OutputAt(height, h, kh, &oh)) continue;
          for (int64_t kw = 0; kw < width.window; ++kw) {
            if (!OutputAt(width, w, kw, &ow)) continue;
            const int64_t k = (kd * height.window + kh) * width.window + kw;
            AddPixelBack(dy + image * out.image + ((od * height.out + oh) * width.out + ow) * out.pixel,
                         f + k * group_in * g.out_channels, pixel);
          }
        }
      }
    }
  }

  // Row `c` (an input channel within its group) of window element (kd, kh, kw).
  void BackwardFilter(const T* x, const T* dy, T* df, int64_t kd, int64_t kh, int64_t kw, int64_t c) const {
    const auto& [depth, height, width] = g.dim;
    const int64_t k = (kd * height.window + kh) * width.window + kw;
    T* row = df + (k * group_in + c) * g.out_channels;
    std::fill(row, row + g.out_channels, T(0));
    int64_t d, h, w;
    for (int64_t image = 0; image < g.batch; ++image) {
      for (int64_t od = 0; od < depth.out; ++od) {
        if (!InputAt(depth, od, kd, &d)) continue;
        for (int64_t oh = 0; oh < height.out; ++oh) {
          if (!InputAt(height, oh, kh, &h)) continue;
          for (int64_t ow = 0; ow < width.out; ++ow) {
            if (!InputAt(width, ow, kw, &w)) continue;
            const T* from = x + image * in.image + ((d * height.in + h) * width.in + w) * in.pixel;
            const T* grad = dy + image * out.image + ((od * height.out + oh) * width.out + ow) * out.pixel;
            for (int64_t group = 0; group < g.groups; ++group) {
              const T v = from[(group * group_in + c) * in.channel];
              for (int64_t o = group * group_out; o < (group + 1) * group_out; ++o) {
                row[o] += v * grad[o * out.channel];
              }
            }
          }
        }
      }
    }
  }
};

}  // namespace

template <typename T>
void RunLoops(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const T* a, const T* b, T* c) {
  const Loops<T> loops{g};
  const auto& [depth, height, width] = g.dim;
  const double filter = static_cast<double>(g.filter_size());
  if (kind == ConvKind::kForward) {
    const int64_t rows = depth.out * height.out;
    const bool depthwise = g.filter_inputs() == 1 && !g.channels_first;
    ctx.ParallelFor(g.batch * rows, PieceOf(filter * width.out), [&](int64_t begin, int64_t end) {
      std::vector<T> room(depthwise && g.out_channels > g.groups ? g.dim[2].in * g.out_channels : 0);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t od = i % rows / g.dim[1].out, oh = i % g.dim[1].out;
        if (depthwise) {
          loops.ForwardDepthwise(a, b, c, i / rows, od, oh, room.data());
        } else {
          loops.Forward(a, b, c, i / rows, od, oh);
        }
      }
    });
  } else if (kind == ConvKind::kBackwardInput) {
    const int64_t rows = depth.in * height.in;
    ctx.ParallelFor(g.batch * rows, PieceOf(filter * width.in), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        loops.BackwardInput(a, b, c, i / rows, i % rows / g.dim[1].in, i % g.dim[1].in);
      }
    });
  } else {
    const int64_t rows = g.window_pixels() * g.filter_inputs();
    const double work = static_cast<double>(g.batch) * g.out_pixels() * g.out_channels;
    ctx.ParallelFor(rows, PieceOf(work), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k = i / g.filter_inputs();
        const int64_t kw = k % g.dim[2].window, kh = k / g.dim[2].window % g.dim[1].window;
        loops.BackwardFilter(a, b, c, k / (g.dim[1].window * g.dim[2].window), kh, kw, i % g.filter_inputs());
      }
    });
  }
}

template void RunLoops<float>(KernelContext&, ConvKind, const ConvGeometry&, const float*, const float*, float*);
template void RunLoops<double>(KernelContext&, ConvKind, const ConvGeometry&, const double*, const double*, double*);
template void RunLoops<uint32_t>(KernelContext&, ConvKind, const ConvGeometry&, const uint32_t*, const uint32_t*,
                                 uint32_t*);

}  // namespace millrace::conv
