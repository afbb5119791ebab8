// Batch normalisation and its gradient on a GPU. NVRTC reads it as text, behind columns.h; nothing else includes it.
// What each step is, ops/nn/batch_norm_passes.h says.
#pragma once

namespace millrace {

// As ops/nn/channel_blocks.h has it.
struct Channels {
  int64_t outer, channels, inner;
};
// The i-th element of a channel.
__device__ inline int64_t ElementOf(const Channels& v, int64_t channel, int64_t i) {
  if (v.inner == 1) return i * v.channels + channel;
  const int64_t outer = i / v.inner;
  return (outer * v.channels + channel) * v.inner + (i - outer * v.inner);
}

// How many elements, their mean, and the sum of the squares of their distances from it.
struct Moments {
  float count = 0, mean = 0, squares = 0;

  __device__ void Join(const Moments& b) {
    if (b.count == 0) return;
    const float n = count + b.count, distance = b.mean - mean, part = b.count / n;
    mean = mean + distance * part;
    squares = squares + b.squares + distance * distance * (count * part);
    count = n;
  }
};

// Of every step-th element from `begin` on. Distances are taken from the first of them, which is near enough to the
// mean: it is one of the elements.
template <typename T>
struct MomentsOf {
  Channels v;
  const T* x;
  __device__ Moments operator()(int64_t channel, int64_t begin, int64_t end, int64_t step) const {
    Moments moments;
    if (begin >= end) return moments;
    const float first = Widen(x[ElementOf(v, channel, begin)]);
    float sum = 0, squares = 0;
    for (int64_t i = begin; i < end; i += step) {
      const float distance = Widen(x[ElementOf(v, channel, i)]) - first;
      sum += distance;
      squares += distance * distance;
    }
    moments.count = static_cast<float>((end - begin + step - 1) / step);
    const float mean = sum / moments.count, rest = squares - sum * mean;
    moments.mean = first + mean;
    moments.squares = rest < 0 ? 0 : rest;
    return moments;
  }
};

// The vectors of one normalisation, one element for each channel.
struct BatchNorm {
  const float *scale, *mean, *variance;  // the op's inputs
  float* results[4];                     // running mean and variance, and those that y is normalised with
  float* factor;
  float epsilon, average;  // `average` is the share of the batch in the running moments
};

__device__ inline void Settle(const BatchNorm& b, int64_t c, float mean, float variance, float running_mean,
                              float running_variance) {
  b.results[0][c] = running_mean;
  b.results[1][c] = running_variance;
  b.results[2][c] = mean;
  b.results[3][c] = variance;
  b.factor[c] = b.scale[c] / std::sqrt(variance + b.epsilon);
}

// In training: from the moments of the batch. The running variance is the unbiased estimate.
struct SettleBatch {
  BatchNorm b;
  __device__ void operator()(int64_t, int64_t c, const Moments& m) const {
    const float none = 0 * Limits<float>::Greatest();  // NaN
    const float mean = m.count > 0 ? m.mean : none, variance = m.count > 0 ? m.squares / m.count : none;
    float running_mean = mean, running_variance = variance * (m.count / (m.count > 1 ? m.count - 1 : 1));
    if (b.average != 1) {
      running_mean = (1 - b.average) * b.mean[c] + b.average * running_mean;
      running_variance = (1 - b.average) * b.variance[c] + b.average * running_variance;
    }
    Settle(b, c, mean, variance, running_mean, running_variance);
  }
};

// Calls fn(i, channel) for this thread's elements of `n`. Divisions of 64 bits take four times as long.
template <typename Index, typename Fn>
__device__ inline void ForElementsBy(int64_t n, const Channels& v, Fn fn) {
  const Index all = static_cast<Index>(n), stride = static_cast<Index>(gridDim.x) * blockDim.x;
  const Index inner = static_cast<Index>(v.inner), channels = static_cast<Index>(v.channels);
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += stride)
    fn(static_cast<int64_t>(i), static_cast<int64_t>(i / inner % channels));
}
template <typename Fn>
__device__ inline void ForChannelElements(int64_t n, const Channels& v, Fn fn) {
  if (n < (int64_t(1) << 31)) {
    ForElementsBy<unsigned>(n, v, fn);
  } else {
    ForElementsBy<unsigned long long>(n, v, fn);
  }
}

template <typename T>
__device__ inline void Normalise(int64_t n, const Channels& v, const T* x, const float* mean, const float* factor,
                                 const float* offset, T* y) {
  ForChannelElements(n, v,
                     [&](int64_t i, int64_t c) { y[i] = Narrow<T>((Widen(x[i]) - mean[c]) * factor[c] + offset[c]); });
}

// The sums of dy and of dy * (x - mean).
struct GradientSums {
  float dy = 0, with_x = 0;
  __device__ void Join(const GradientSums& b) {
    dy += b.dy;
    with_x += b.with_x;
  }
};
template <typename T>
struct GradientSumsOf {
  Channels v;
  const T *dy, *x;
  const float* mean;
  __device__ GradientSums operator()(int64_t channel, int64_t begin, int64_t end, int64_t step) const {
    GradientSums sums;
    for (int64_t i = begin; i < end; i += step) {
      const int64_t at = ElementOf(v, channel, i);
      const float g = Widen(dy[at]);
      sums.dy += g;
      sums.with_x += g * (Widen(x[at]) - mean[channel]);
    }
    return sums;
  }
};

// The vectors of one gradient.
struct BatchNormGradient {
  const float *scale, *variance;
  float *dscale, *doffset;
  float *slope, *shift, *tilt;  // dx = slope * (dy - shift - (x - mean) * tilt)
  float epsilon, count;         // `count` elements of each channel; 0: the moments are constants, as in inference
};
struct SettleGradient {
  BatchNormGradient b;
  __device__ void operator()(int64_t, int64_t c, const GradientSums& sums) const {
    const float inverse = 1 / std::sqrt(b.variance[c] + b.epsilon);
    b.slope[c] = b.scale[c] * inverse;
    b.shift[c] = b.count > 0 ? sums.dy / b.count : 0;
    b.tilt[c] = b.count > 0 ? sums.with_x / b.count * inverse * inverse : 0;
    b.doffset[c] = sums.dy;
    b.dscale[c] = sums.with_x * inverse;
  }
};

template <typename T>
__device__ inline void GradientOfInput(int64_t n, const Channels& v, const T* dy, const T* x, const float* mean,
                                       const BatchNormGradient& b, T* dx) {
  ForChannelElements(n, v, [&](int64_t i, int64_t c) {
    dx[i] = Narrow<T>(b.slope[c] * (Widen(dy[i]) - b.shift[c] - (Widen(x[i]) - mean[c]) * b.tilt[c]));
  });
}

}  // namespace millrace
