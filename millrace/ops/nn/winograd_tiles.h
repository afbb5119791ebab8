// The arithmetic of Winograd's convolution in tiles of 2 x 2 outputs (Lavin and Gray's F(2x2, 3x3), with the roles of
// filter and output exchanged for the filter's gradient): transforms, and the products between them. Channels are
// multiples of kVec. A transformed tile is a number of planes: element e of tile t and channel c is at
// e * plane + t * channels + c.
#pragma once

#include <algorithm>
#include <array>

#include "millrace/ops/kernels/vec.h"
#include "millrace/ops/nn/winograd_tiling.h"

namespace millrace::conv::winograd {

// A scheme has the transforms along one dimension for windows of kWindow elements, whose tiles are kWindow + 1 pixels
// wide. An input and a filter have kSide elements, an output has kOutSide: the product of elements e of input and
// filter goes to element kTo[e] of the output; for the filter's gradient, elements e of the input and kTo[e] of the
// output's gradient give element e.

// Interpolation points 0, 1, -1 and infinity. All factors are powers of two, so only the sums round.
struct Window3 {
  static constexpr int kWindow = 3;
  static constexpr int kSide = 4;
  static constexpr int kOutSide = 4;
  static constexpr int kTo[kSide] = {0, 1, 2, 3};
  static void Input(const Vec d[4], Vec r[4]) {
    r[0] = d[0] - d[2];
    r[1] = d[1] + d[2];
    r[2] = d[2] - d[1];
    r[3] = d[1] - d[3];
  }
  static void Output(const Vec m[4], Vec y[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
  }
  static void Filter(const Vec g[3], Vec u[4]) {
    const Vec half = Broadcast(0.5f);
    u[0] = g[0];
    u[1] = half * (g[0] + g[1] + g[2]);
    u[2] = half * (g[0] - g[1] + g[2]);
    u[3] = g[2];
  }
  static void Gradient(const Vec dy[2], Vec e[4]) {
    e[0] = dy[0];
    e[1] = dy[0] + dy[1];
    e[2] = dy[0] - dy[1];
    e[3] = dy[1];
  }
  static void FilterGradient(const Vec s[4], Vec dg[3]) {
    const Vec half = Broadcast(0.5f);
    const Vec even = half * (s[1] + s[2]);
    dg[0] = s[0] + even;
    dg[1] = half * (s[1] - s[2]);
    dg[2] = even - s[3];
  }
};

// A window of 3 and one of 2 (at 0, 1 and infinity), whose sums are added in the same output elements: as accurate as
// these.
struct Window5Split : Window3 {
  static constexpr int kWindow = 5;
  static constexpr int kSide = 7;
  static constexpr int kTo[kSide] = {0, 1, 2, 3, 0, 1, 3};
  static void Input(const Vec d[6], Vec r[7]) {
    Window3::Input(d, r);
    r[4] = d[3] - d[4];
    r[5] = d[4];
    r[6] = d[4] - d[5];
  }
  static void Filter(const Vec g[5], Vec u[7]) {
    Window3::Filter(g, u);
    u[4] = g[3];
    u[5] = g[3] + g[4];
    u[6] = g[4];
  }
  static void FilterGradient(const Vec s[7], Vec dg[5]) {
    Window3::FilterGradient(s, dg);
    dg[3] = s[4] + s[5];
    dg[4] = s[5] - s[6];
  }
};

// Interpolation points 0, 1, -1, 1/2, -2 and infinity: fewer products, with an error comparable to direct summation.
// For the filter's gradient, where the error would be several times that, use Window5Split.
struct Window5 {
  static constexpr int kWindow = 5;
  static constexpr int kSide = 6;
  static constexpr int kOutSide = 6;
  static constexpr int kTo[kSide] = {0, 1, 2, 3, 4, 5};
  static void Input(const Vec d[6], Vec r[6]) {
    const Vec two = Broadcast(2), more = Broadcast(1.5f), half = Broadcast(0.5f);
    const Vec even = d[4] - d[2], odd = d[3] - d[1];
    r[0] = MulAdd(more, odd, d[4] + d[0]) - two * d[2];
    r[1] = MulAdd(half, d[2], MulAdd(Broadcast(2.5f), d[3], d[4] - d[1]));
    r[2] = MulAdd(half, d[3], d[4] + d[1]) - Broadcast(2.5f) * d[2];
    r[3] = MulAdd(two, odd, even);
    r[4] = even - half * odd;
    r[5] = MulAdd(more, even, d[5] + d[1]) - two * d[3];
  }
  static void Output(const Vec m[6], Vec y[2]) {
    y[0] = (m[0] + (m[1] + m[2])) + (m[3] + m[4]);
    y[1] = MulAdd(Broadcast(0.5f), m[3], m[1] - m[2]) + (m[5] - Broadcast(2) * m[4]);
  }
  static void Filter(const Vec g[5], Vec u[6]) {
    const Vec even = g[0] + g[2] + g[4], odd = g[1] + g[3];
    const auto at = [&](float p) {
      const Vec x = Broadcast(p);
      return MulAdd(MulAdd(MulAdd(MulAdd(g[4], x, g[3]), x, g[2]), x, g[1]), x, g[0]);
    };
    u[0] = g[0];
    u[1] = Broadcast(1.0f / 3) * (even + odd);
    u[2] = Broadcast(-1.0f / 3) * (even - odd);
    u[3] = Broadcast(-16.0f / 15) * at(0.5f);
    u[4] = Broadcast(1.0f / 15) * at(-2);
    u[5] = g[4];
  }
};

// The rows of pixels that a row of tiles reads; rows outside the image point to zeros and have step 0.
template <int W>
struct Rows {
  std::array<const float*, W + 1> row;
  std::array<int64_t, W + 1> step;  // from pixel to pixel
  int64_t width;                    // pixels in a row; those outside are 0
  // Prefetch addresses: what the next row of tiles will read first.
  std::array<const float*, 2> ahead;
};

// The transforms of whole tiles.
template <typename Scheme>
struct Tiles {
  static constexpr int W = Scheme::kWindow;
  static constexpr int kPixels = W + 1;
  static constexpr int kSide = Scheme::kSide;
  static constexpr int kElements = kSide * kSide;
  static constexpr int kOutSide = Scheme::kOutSide;
  static constexpr int kOutElements = kOutSide * kOutSide;
  // The element of the output that element e goes to, and whether an element before it went there too.
  static constexpr int To(int e) { return Scheme::kTo[e / kSide] * kOutSide + Scheme::kTo[e % kSide]; }
  static constexpr bool IsFirst(int e) { return e / kSide < kOutSide && e % kSide < kOutSide; }

  // Transforms `tiles` adjacent tiles, the first of which begins at pixel x (which may be negative). Neighbours share
  // all columns except two.
  static void TransformInput(const Rows<W>& rows, int64_t x, int64_t tiles, int64_t channels, float* out,
                             int64_t plane) {
    Vec columns[2 * kMostTilesOfRun + W][kSide];
    for (int64_t c = 0; c < channels; c += kVec) {
      for (int64_t i = 0; i < 2 * tiles + W - 1; ++i) InputColumn(rows, x + i, c, channels, columns[i]);
      float* to = out + c;
      for (int64_t t = 0; t < tiles; ++t, to += channels) {
        for (int i = 0; i < kSide; ++i) {
          Vec d[kPixels], r[kSide];
          for (int j = 0; j < kPixels; ++j) d[j] = columns[2 * t + j][i];
          Scheme::Input(d, r);
          for (int j = 0; j < kSide; ++j) Store(to + (kSide * i + j) * plane, r[j]);
        }
      }
    }
  }

  // Transforms one tile of products to 2 x 2 output pixels. The pixels at `ahead` are written next (prefetch).
  static void TransformOutput(const float* in, int64_t plane, int64_t channels, const std::array<float*, 4>& pixels,
                              int64_t ahead) {
    for (int64_t c = 0; c < channels; c += kVec) {
      for (float* pixel : pixels) __builtin_prefetch(pixel + ahead + c, 1);
      Vec rows[2][kOutSide];
      for (int j = 0; j < kOutSide; ++j) {
        Vec m[kOutSide], y[2];
        for (int i = 0; i < kOutSide; ++i) m[i] = Load(in + (kOutSide * i + j) * plane + c);
        Scheme::Output(m, y);
        rows[0][j] = y[0];
        rows[1][j] = y[1];
      }
      for (int i = 0; i < 2; ++i) {
        Vec y[2];
        Scheme::Output(rows[i], y);
        Store(pixels[2 * i] + c, y[0]);
        Store(pixels[2 * i + 1] + c, y[1]);
      }
    }
  }

  // Transforms 2 x 2 pixels of an output's gradient to one tile. The pixels at `ahead` are read next (prefetch).
  static void TransformGradient(const std::array<const float*, 4>& pixels, int64_t channels, float* out, int64_t plane,
                                int64_t ahead) {
    for (int64_t c = 0; c < channels; c += kVec) {
      for (const float* pixel : pixels) __builtin_prefetch(pixel + ahead + c);
      Vec columns[2][kOutSide];
      for (int j = 0; j < 2; ++j) {
        const Vec dy[2] = {Load(pixels[j] + c), Load(pixels[2 + j] + c)};
        Scheme::Gradient(dy, columns[j]);
      }
      for (int i = 0; i < kOutSide; ++i) {
        const Vec dy[2] = {columns[0][i], columns[1][i]};
        Vec e[kOutSide];
        Scheme::Gradient(dy, e);
        for (int j = 0; j < kOutSide; ++j) Store(out + (kOutSide * i + j) * plane + c, e[j]);
      }
    }
  }

  // Transforms the filter for kVec outputs, with elements `step` apart; `turned` rotates it by 180 degrees.
  static void TransformFilter(const float* in, int64_t step, bool turned, float* out, int64_t plane) {
    Vec columns[W][kSide];
    for (int s = 0; s < W; ++s) {
      Vec g[W];
      for (int r = 0; r < W; ++r) g[r] = Load(in + (turned ? W * W - 1 - (W * r + s) : W * r + s) * step);
      Scheme::Filter(g, columns[s]);
    }
    for (int i = 0; i < kSide; ++i) {
      Vec g[W], u[kSide];
      for (int s = 0; s < W; ++s) g[s] = columns[s][i];
      Scheme::Filter(g, u);
      for (int j = 0; j < kSide; ++j) Store(out + (kSide * i + j) * plane, u[j]);
    }
  }

  // Sums of products to the filter's gradient, for kVec outputs.
  static void FilterGradient(const Vec sums[kElements], float* out, int64_t step) {
    Vec columns[kSide][W];
    for (int j = 0; j < kSide; ++j) {
      Vec s[kSide];
      for (int i = 0; i < kSide; ++i) s[i] = sums[kSide * i + j];
      Scheme::FilterGradient(s, columns[j]);
    }
    for (int i = 0; i < W; ++i) {
      Vec s[kSide], dg[W];
      for (int j = 0; j < kSide; ++j) s[j] = columns[j][i];
      Scheme::FilterGradient(s, dg);
      for (int j = 0; j < W; ++j) Store(out + (W * i + j) * step, dg[j]);
    }
  }

 private:
  static void InputColumn(const Rows<W>& rows, int64_t x, int64_t c, int64_t channels, Vec r[kSide]) {
    for (const float* row : rows.ahead) __builtin_prefetch(row + x * channels + c);
    if (x < 0 || x >= rows.width) {
      for (int i = 0; i < kSide; ++i) r[i] = Vec{};
      return;
    }
    Vec d[kPixels];
    for (int i = 0; i < kPixels; ++i) d[i] = Load(rows.row[i] + x * rows.step[i] + c);
    Scheme::Input(d, r);
  }
};

// A matrix with its row and column strides, in floats.
struct Strided {
  const float* data;
  int64_t row;
  int64_t column;
};

namespace internal {
// c[M, V * kVec] (+)= a[M, depth] * b[depth, V * kVec].
template <int M, int V, bool kAdd>
inline void Product(const Strided& a, const float* b, int64_t b_row, int64_t depth, float* c, int64_t c_row) {
  Vec sum[M][V];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < V; ++v) sum[m][v] = kAdd ? Load(c + m * c_row + v * kVec) : Vec{};
  }
  const float* from = a.data;
  for (int64_t d = 0; d < depth; ++d, from += a.column, b += b_row) {
    Vec right[V];
    for (int v = 0; v < V; ++v) right[v] = Load(b + v * kVec);
    for (int m = 0; m < M; ++m) {
      const Vec left = Broadcast(from[m * a.row]);
      for (int v = 0; v < V; ++v) sum[m][v] = MulAdd(left, right[v], sum[m][v]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < V; ++v) Store(c + m * c_row + v * kVec, sum[m][v]);
  }
}

template <int V, bool kAdd>
inline void ProductColumns(const Strided& a, int64_t rows, const float* b, int64_t b_row, int64_t depth, float* c,
                           int64_t c_row) {
  // Six rows fill the registers, and a single row would be latency-bound, so all pieces have about the same size.
  const int64_t pieces = (rows + 5) / 6, least = rows / pieces, longer = rows % pieces;
  for (int64_t p = 0, r = 0; p < pieces; ++p) {
    const Strided part{a.data + r * a.row, a.row, a.column};
    float* to = c + r * c_row;
    const int64_t n = least + (p < longer ? 1 : 0);
    switch (n) {
      case 6:
        Product<6, V, kAdd>(part, b, b_row, depth, to, c_row);
        break;
      case 5:
        Product<5, V, kAdd>(part, b, b_row, depth, to, c_row);
        break;
      case 4:
        Product<4, V, kAdd>(part, b, b_row, depth, to, c_row);
        break;
      case 3:
        Product<3, V, kAdd>(part, b, b_row, depth, to, c_row);
        break;
      case 2:
        Product<2, V, kAdd>(part, b, b_row, depth, to, c_row);
        break;
      default:
        Product<1, V, kAdd>(part, b, b_row, depth, to, c_row);
        break;
    }
    r += n;
  }
}
}  // namespace internal

// c[rows, columns] = a[rows, depth] * b[depth, columns], or with kAdd added to c. columns is a multiple of kVec.
template <bool kAdd>
inline void MultiplyPlane(const Strided& a, int64_t rows, const float* b, int64_t b_row, int64_t depth, float* c,
                          int64_t c_row, int64_t columns) {
  int64_t k = 0;
  for (; k + 2 * kVec <= columns; k += 2 * kVec) {
    internal::ProductColumns<2, kAdd>(a, rows, b + k, b_row, depth, c + k, c_row);
  }
  if (k < columns) internal::ProductColumns<1, kAdd>(a, rows, b + k, b_row, depth, c + k, c_row);
}

}  // namespace millrace::conv::winograd
