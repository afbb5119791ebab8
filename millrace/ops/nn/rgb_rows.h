// Rows of pixels of convolutions from three colours with 3 x 3 windows. No header of its own: rgb_convolution.cc
// includes it once for each width of vectors, in a namespace that has kVec, Vec, Load, Store, Broadcast and MulAdd.
//
// The window of pixel x of an output covers nine adjacent floats, from 3 * stride * x on, of each of three rows of the
// padded image. Output channels are a multiple of kVec.

struct RgbRows {
  static constexpr int64_t kChannels = kVec;

  // One row of the output. The filter is [3, 9, channels].
  static void Forward(const RgbWindow& w, int64_t width, const float* filter, int64_t channels, float* out) {
    if (w.step == 3) {
      ForwardAs<3>(w, width, filter, channels, out);
    } else {
      ForwardAs<0>(w, width, filter, channels, out);
    }
  }

  // Adds what one row of the output's gradient contributes to the filter's.
  static void AddFilterGradient(const RgbWindow& w, int64_t width, const float* dy, int64_t channels, float* sums) {
    for (int64_t k = 0; k < channels; k += kVec) {
      for (int r = 0; r < 3; ++r) {
        float* to = sums + 9 * r * channels + k;
        Vec sum[9];
#pragma GCC unroll 9
        for (int i = 0; i < 9; ++i) sum[i] = Load(to + i * channels);
        const float* from = w.row[r];
        for (int64_t x = 0; x < width; ++x, from += w.step) {
          const Vec right = Load(dy + x * channels + k);
#pragma GCC unroll 9
          for (int i = 0; i < 9; ++i) sum[i] = MulAdd(Broadcast(from[i]), right, sum[i]);
        }
#pragma GCC unroll 9
        for (int i = 0; i < 9; ++i) Store(to + i * channels, sum[i]);
      }
    }
  }

 private:
  // kStep is w.step, or 0 if it is not known to the compiler.
  template <int kStep>
  static void ForwardAs(const RgbWindow& w, int64_t width, const float* filter, int64_t channels, float* out) {
    constexpr int kPixels = kVec == 16 ? 16 : 12;
    for (int64_t k = 0; k < channels; k += kVec) {
      int64_t x = 0;
      for (; x + kPixels <= width; x += kPixels) {
        Pixels<kPixels, kStep>(w, x, filter + k, channels, out + x * channels + k);
      }
      for (; x + 4 <= width; x += 4) Pixels<4, kStep>(w, x, filter + k, channels, out + x * channels + k);
      for (; x < width; ++x) Pixels<1, kStep>(w, x, filter + k, channels, out + x * channels + k);
    }
  }

  // M pixels from x on.
  template <int M, int kStep>
  static inline void Pixels(const RgbWindow& w, int64_t x, const float* filter, int64_t channels, float* out) {
    const int64_t step = kStep == 0 ? w.step : kStep;
    Vec sum[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) sum[m] = Broadcast(0);
    for (int r = 0; r < 3; ++r) {
      const float* from = w.row[r] + x * step;
      for (int i = 0; i < 9; ++i, ++from, filter += channels) {
        const Vec right = Load(filter);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) sum[m] = MulAdd(Broadcast(from[m * step]), right, sum[m]);
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) Store(out + m * channels, sum[m]);
  }
};
