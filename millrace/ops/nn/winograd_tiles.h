// The arithmetic of Winograd's convolution of 3 x 3 windows in tiles of 4 x 4 (Lavin and Gray's F(2x2, 3x3), and
// F(3x3, 2x2) for the filter's gradient): transforms, and the products between them. Channels are multiples of
// kVec. A transformed tile is 16 planes: element e of tile t and channel c is at e * plane + t * channels + c.
#pragma once

#include <algorithm>
#include <array>

#include "millrace/ops/kernels/vec.h"

namespace millrace::conv::winograd {

inline constexpr int kElements = 16;

// Four rows of pixels that a row of tiles reads; rows outside of the image point to zeros and have step 0.
struct Rows {
  std::array<const float*, 4> row;
  std::array<int64_t, 4> step;  // from pixel to pixel
  int64_t width;                // pixels in a row; those outside are 0
  // What the next row of tiles will read first; any address.
  std::array<const float*, 2> ahead;
};

namespace internal {
struct Column {
  Vec t[4];
};
inline Column InputColumn(const Rows& rows, int64_t x, int64_t c) {
  if (x < 0 || x >= rows.width) return {};
  const Vec d0 = Load(rows.row[0] + x * rows.step[0] + c), d1 = Load(rows.row[1] + x * rows.step[1] + c),
            d2 = Load(rows.row[2] + x * rows.step[2] + c), d3 = Load(rows.row[3] + x * rows.step[3] + c);
  return {{d0 - d2, d1 + d2, d2 - d1, d1 - d3}};
}
}  // namespace internal

// Transforms `tiles` tiles side by side, the first beginning at pixel x (which may be negative). Neighbours share
// two columns.
inline void TransformInput(const Rows& rows, int64_t x, int64_t tiles, int64_t channels, float* out, int64_t plane) {
  using internal::Column;
  for (int64_t c = 0; c < channels; c += kVec) {
    Column c0 = internal::InputColumn(rows, x, c), c1 = internal::InputColumn(rows, x + 1, c);
    float* to = out + c;
    for (int64_t t = 0; t < tiles; ++t, to += channels) {
      const int64_t next = (x + 2 * t + 2) * channels + c;
      for (const float* row : rows.ahead) {
        __builtin_prefetch(row + next);
        __builtin_prefetch(row + next + channels);
      }
      const Column c2 = internal::InputColumn(rows, x + 2 * t + 2, c);
      for (int i = 0; i < 4; ++i) {
        Store(to + (4 * i) * plane, c0.t[i] - c2.t[i]);
        Store(to + (4 * i + 1) * plane, c1.t[i] + c2.t[i]);
        Store(to + (4 * i + 2) * plane, c2.t[i] - c1.t[i]);
      }
      const Column c3 = internal::InputColumn(rows, x + 2 * t + 3, c);
      for (int i = 0; i < 4; ++i) Store(to + (4 * i + 3) * plane, c1.t[i] - c3.t[i]);
      c0 = c2;
      c1 = c3;
    }
  }
}

// One tile of products to 2 x 2 pixels of output. Pixels `ahead` of these are the next to be written.
inline void TransformOutput(const float* in, int64_t plane, int64_t channels, const std::array<float*, 4>& pixels,
                            int64_t ahead) {
  for (int64_t c = 0; c < channels; c += kVec) {
    for (float* pixel : pixels) __builtin_prefetch(pixel + ahead + c, 1);
    Vec top[4], bottom[4];
    for (int j = 0; j < 4; ++j) {
      const Vec m0 = Load(in + j * plane + c), m1 = Load(in + (4 + j) * plane + c),
                m2 = Load(in + (8 + j) * plane + c), m3 = Load(in + (12 + j) * plane + c);
      top[j] = m0 + m1 + m2;
      bottom[j] = m1 - m2 - m3;
    }
    Store(pixels[0] + c, top[0] + top[1] + top[2]);
    Store(pixels[1] + c, top[1] - top[2] - top[3]);
    Store(pixels[2] + c, bottom[0] + bottom[1] + bottom[2]);
    Store(pixels[3] + c, bottom[1] - bottom[2] - bottom[3]);
  }
}

// 2 x 2 pixels of an output's gradient to one tile. Without the halves of the transform: FilterGradient has them.
inline void TransformGradient(const std::array<const float*, 4>& pixels, int64_t channels, float* out,
                              int64_t plane, int64_t ahead) {
  for (int64_t c = 0; c < channels; c += kVec) {
    for (const float* pixel : pixels) __builtin_prefetch(pixel + ahead + c);
    const Vec y00 = Load(pixels[0] + c), y01 = Load(pixels[1] + c), y10 = Load(pixels[2] + c),
              y11 = Load(pixels[3] + c);
    const Vec left[4] = {y00, y00 + y10, y00 - y10, y10}, right[4] = {y01, y01 + y11, y01 - y11, y11};
    float* to = out + c;
    for (int i = 0; i < 4; ++i, to += 4 * plane) {
      Store(to, left[i]);
      Store(to + plane, left[i] + right[i]);
      Store(to + 2 * plane, left[i] - right[i]);
      Store(to + 3 * plane, right[i]);
    }
  }
}

// The filter's 3 x 3 elements for kVec outputs to 4 x 4; `flipped` turns it by 180 degrees.
inline void TransformFilter(const float* in, int64_t step, bool flipped, float* out, int64_t plane) {
  const Vec half = Broadcast(0.5f);
  Vec rows[4][3];
  for (int s = 0; s < 3; ++s) {
    const auto at = [&](int r) { return Load(in + (flipped ? 8 - (3 * r + s) : 3 * r + s) * step); };
    const Vec g0 = at(0), g1 = at(1), g2 = at(2);
    rows[0][s] = g0;
    rows[1][s] = half * (g0 + g1 + g2);
    rows[2][s] = half * (g0 - g1 + g2);
    rows[3][s] = g2;
  }
  for (int i = 0; i < 4; ++i) {
    const Vec g0 = rows[i][0], g1 = rows[i][1], g2 = rows[i][2];
    Store(out + (4 * i) * plane, g0);
    Store(out + (4 * i + 1) * plane, half * (g0 + g1 + g2));
    Store(out + (4 * i + 2) * plane, half * (g0 - g1 + g2));
    Store(out + (4 * i + 3) * plane, g2);
  }
}

// 4 x 4 sums of products to the 3 x 3 of a filter's gradient, for kVec outputs.
inline void FilterGradient(const Vec sums[kElements], float* out, int64_t step) {
  const Vec half = Broadcast(0.5f);
  Vec rows[3][4];
  for (int j = 0; j < 4; ++j) {
    const Vec s0 = sums[j], s1 = half * sums[4 + j], s2 = half * sums[8 + j], s3 = sums[12 + j];
    rows[0][j] = s0 + (s1 + s2);
    rows[1][j] = s1 - s2;
    rows[2][j] = (s1 + s2) - s3;
  }
  for (int i = 0; i < 3; ++i) {
    const Vec s0 = rows[i][0], s1 = half * rows[i][1], s2 = half * rows[i][2], s3 = rows[i][3];
    Store(out + (3 * i) * step, s0 + (s1 + s2));
    Store(out + (3 * i + 1) * step, s1 - s2);
    Store(out + (3 * i + 2) * step, (s1 + s2) - s3);
  }
}

// A matrix with the distances, in floats, between its rows and between its columns.
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
  for (int64_t r = 0; r < rows;) {
    const Strided part{a.data + r * a.row, a.row, a.column};
    const int64_t left = rows - r;
    // Six rows fill the registers; a rest of 8 goes better as 4 and 4.
    if (left >= 6 && left != 8) {
      Product<6, V, kAdd>(part, b, b_row, depth, c + r * c_row, c_row);
      r += 6;
    } else if (left >= 4) {
      Product<4, V, kAdd>(part, b, b_row, depth, c + r * c_row, c_row);
      r += 4;
    } else if (left >= 2) {
      Product<2, V, kAdd>(part, b, b_row, depth, c + r * c_row, c_row);
      r += 2;
    } else {
      Product<1, V, kAdd>(part, b, b_row, depth, c + r * c_row, c_row);
      r += 1;
    }
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
