// The arithmetic of Winograd convolutions of 3 x 3 windows: transforms of tiles, and the products between them. No
// header of its own: winograd_3x3.cc includes it once for each width of vectors, in a namespace that has kVec, Vec,
// Load, Store, Broadcast and MulAdd.
//
// Images have their channels last. Transformed tiles are in blocks of channels: element e of tile t, channels
// [b * kVec, (b + 1) * kVec), is at e * plane + (b * room + t) * kVec, where `room` is the number of tiles that there
// is room for. So the strides within a product are constants.
//
// A kind of tiles has transforms for tiles of kOutStep x kOutStep outputs, which read kPixels x kPixels inputs, kInStep
// from those of the next tile. The product of elements From(e) of the input and e of the filter goes to element To(e)
// of the output, which is its first if IsFirst(e). For the filter's gradient, elements e of the input and To(e) of the
// output's gradient give element e.

// ---- Products ----

struct Products {
  static constexpr int64_t kChannels = kVec;
  // The tiles of a block are padded to a multiple of this.
  static constexpr int64_t kGroup = kVec == 16 ? 16 : 12;

  // Adds the differences of height x width pixels from `shift`, and their squares, to sums for each channel. Rows are
  // `row` floats apart.
  static void AddMoments(const float* pixels, int64_t height, int64_t width, int64_t row, int64_t channels,
                         const float* shift, float* sums, float* squares) {
    for (int64_t c = 0; c < channels; c += kVec) {
      const Vec centre = Load(shift + c);
      // Independent sums, since each addition waits for the one before.
      Vec sum[4], square[4];
      for (int i = 0; i < 4; ++i) sum[i] = square[i] = Broadcast(0);
      for (int64_t y = 0; y < height; ++y) {
        const float* from = pixels + y * row + c;
        int64_t x = 0;
        for (; x + 4 <= width; x += 4) {
          for (int i = 0; i < 4; ++i) {
            const Vec d = Load(from + (x + i) * channels) - centre;
            sum[i] += d;
            square[i] = MulAdd(d, d, square[i]);
          }
        }
        for (; x < width; ++x) {
          const Vec d = Load(from + x * channels) - centre;
          sum[0] += d;
          square[0] = MulAdd(d, d, square[0]);
        }
      }
      Store(sums + c, Load(sums + c) + ((sum[0] + sum[1]) + (sum[2] + sum[3])));
      Store(squares + c, Load(squares + c) + ((square[0] + square[1]) + (square[2] + square[3])));
    }
  }

  // out (+)= in * filter for one element of tiles: [tiles, from] * [from, to]; `tiles` is a multiple of kGroup.
  static void Multiply(const float* in, int64_t tiles, int64_t room, int64_t from, const float* filter, int64_t to,
                       bool add, float* out) {
    if (add) {
      MultiplyAs<true>(in, tiles, room, from, filter, to, out);
    } else {
      MultiplyAs<false>(in, tiles, room, from, filter, to, out);
    }
  }

  // sums (+)= in^T * gradients for one element of `tiles` tiles: [from, tiles] * [tiles, to].
  static void MultiplyTransposed(const float* in, const float* gradients, int64_t tiles, int64_t room, int64_t from,
                                 int64_t to, bool add, float* sums) {
    for (int64_t c = 0; c < from; c += kVec) {
      for (int64_t k = 0; k < to; k += kVec) {
        const float *a = in + c * room, *b = gradients + k * room;
        float* sum = sums + c * to + k;
        if (add) {
          ProductOfTiles<true>(a, b, tiles, sum, to);
        } else {
          ProductOfTiles<false>(a, b, tiles, sum, to);
        }
      }
    }
  }

 private:
  template <bool kAdd>
  static void MultiplyAs(const float* in, int64_t tiles, int64_t room, int64_t from, const float* filter, int64_t to,
                         float* out) {
    constexpr int kRows = kVec == 16 ? 16 : 12;
    for (int64_t t = 0; t < tiles; t += kRows) {
      int64_t k = 0;
      for (; k + 2 * kVec <= to; k += 2 * kVec) {
        for (int r = 0; r < kRows; r += kRows / 2) {
          Product<kRows / 2, 2, kAdd>(in + (t + r) * kVec, room, from, filter + k, to,
                                      out + (k / kVec * room + t + r) * kVec);
        }
      }
      if (k < to)
        Product<kRows, 1, kAdd>(in + t * kVec, room, from, filter + k, to, out + (k / kVec * room + t) * kVec);
    }
  }

  // Of M tiles and V vectors of outputs.
  template <int M, int V, bool kAdd>
  static inline void Product(const float* in, int64_t room, int64_t from, const float* filter, int64_t to, float* out) {
    Vec sum[M][V];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[m][v] = kAdd ? Load(out + (v * room + m) * kVec) : Broadcast(0);
    }
    for (int64_t b = 0; b < from; b += kVec, in += room * kVec) {
      for (int64_t c = 0; c < kVec; ++c, filter += to) {
        Vec right[V];
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) right[v] = Load(filter + v * kVec);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
          const Vec left = Broadcast(in[m * kVec + c]);
#pragma GCC unroll 2
          for (int v = 0; v < V; ++v) sum[m][v] = MulAdd(left, right[v], sum[m][v]);
        }
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v, out += room * kVec) {
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) Store(out + m * kVec, sum[m][v]);
    }
  }

  // Of kVec inputs and kVec outputs.
  template <bool kAdd>
  static inline void ProductOfTiles(const float* in, const float* gradients, int64_t tiles, float* sums, int64_t row) {
    Vec sum[kVec];
#pragma GCC unroll 16
    for (int m = 0; m < kVec; ++m) sum[m] = kAdd ? Load(sums + m * row) : Broadcast(0);
    for (int64_t t = 0; t < tiles; ++t, in += kVec, gradients += kVec) {
      const Vec right = Load(gradients);
#pragma GCC unroll 16
      for (int m = 0; m < kVec; ++m) sum[m] = MulAdd(Broadcast(in[m]), right, sum[m]);
    }
#pragma GCC unroll 16
    for (int m = 0; m < kVec; ++m) Store(sums + m * row, sum[m]);
  }
};

// ---- Without strides: F(4x4, 3x3) ----
//
// The interpolation points are 0, +-5/8, +-3/2 and infinity: products of 6 x 6 elements give 4 x 4 outputs with about
// twice the rounding error of direct summation (with +-1 and +-2 it would be five times that). All factors but those of
// the filter are exact.

constexpr float kP = 0.625f, kP2 = kP * kP, kP3 = kP2 * kP;
constexpr float kQ = 1.5f, kQ2 = kQ * kQ, kQ3 = kQ2 * kQ;
// Of the polynomial x (x^2 - kP2) (x^2 - kQ2): its coefficients, and the reciprocals of its derivative at the points.
constexpr float kLow = kP2 * kQ2, kMiddle = -(kP2 + kQ2);
constexpr float kAtZero = 1 / kLow, kAtP = 1 / (2 * kP2 * (kP2 - kQ2)), kAtQ = 1 / (2 * kQ2 * (kQ2 - kP2));

// Six pixels to the elements at infinity and 0, or at the points +-kP, or at +-kQ.
struct Ends {
  static constexpr int kFirst = 0, kSecond = 5;
  static constexpr int kFrom = 0, kTo = 6;  // the pixels that are used
  static inline void Input(const Vec d[6], Vec& first, Vec& second) {
    const Vec low = Broadcast(kLow), middle = Broadcast(kMiddle);
    first = MulAdd(low, d[0], MulAdd(middle, d[2], d[4]));
    second = MulAdd(low, d[1], MulAdd(middle, d[3], d[5]));
  }
};
template <bool kOuter>
struct Pair {
  static constexpr int kFirst = kOuter ? 3 : 1, kSecond = kFirst + 1;
  static constexpr int kFrom = 1, kTo = 5;
  static inline void Input(const Vec d[6], Vec& first, Vec& second) {
    const Vec square = Broadcast(kOuter ? -kP2 : -kQ2);
    const Vec even = MulAdd(square, d[2], d[4]), odd = MulAdd(square, d[1], d[3]);
    first = MulAdd(Broadcast(kOuter ? kQ : kP), odd, even);
    second = MulAdd(Broadcast(kOuter ? -kQ : -kP), odd, even);
  }
};
using Inner = Pair<false>;
using Outer = Pair<true>;

static inline void InputElements(const Vec d[6], Vec r[6]) {
  Ends::Input(d, r[0], r[5]);
  Inner::Input(d, r[1], r[2]);
  Outer::Input(d, r[3], r[4]);
}
static inline void OutputElements(const Vec m[6], Vec y[4]) {
  const Vec p = m[1] + m[2], p_odd = m[1] - m[2], q = m[3] + m[4], q_odd = m[3] - m[4];
  y[0] = m[0] + p + q;
  y[1] = MulAdd(Broadcast(kP), p_odd, Broadcast(kQ) * q_odd);
  y[2] = MulAdd(Broadcast(kP2), p, Broadcast(kQ2) * q);
  y[3] = MulAdd(Broadcast(kP3), p_odd, MulAdd(Broadcast(kQ3), q_odd, m[5]));
}
static inline void FilterElements(const Vec g[3], Vec u[6]) {
  const Vec p = MulAdd(Broadcast(kP2), g[2], g[0]), q = MulAdd(Broadcast(kQ2), g[2], g[0]);
  const Vec p_odd = Broadcast(kP) * g[1], q_odd = Broadcast(kQ) * g[1];
  u[0] = Broadcast(kAtZero) * g[0];
  u[1] = Broadcast(kAtP) * (p + p_odd);
  u[2] = Broadcast(kAtP) * (p - p_odd);
  u[3] = Broadcast(kAtQ) * (q + q_odd);
  u[4] = Broadcast(kAtQ) * (q - q_odd);
  u[5] = g[2];
}
static inline void GradientElements(const Vec dy[4], Vec e[6]) {
  const Vec p = MulAdd(Broadcast(kP2), dy[2], dy[0]), p_odd = MulAdd(Broadcast(kP2), dy[3], dy[1]);
  const Vec q = MulAdd(Broadcast(kQ2), dy[2], dy[0]), q_odd = MulAdd(Broadcast(kQ2), dy[3], dy[1]);
  e[0] = dy[0];
  e[1] = MulAdd(Broadcast(kP), p_odd, p);
  e[2] = MulAdd(Broadcast(-kP), p_odd, p);
  e[3] = MulAdd(Broadcast(kQ), q_odd, q);
  e[4] = MulAdd(Broadcast(-kQ), q_odd, q);
  e[5] = dy[3];
}
static inline void FilterGradientElements(const Vec s[6], Vec dg[3]) {
  const Vec at_p = Broadcast(kAtP), at_q = Broadcast(kAtQ);
  const Vec p = at_p * (s[1] + s[2]), p_odd = at_p * (s[1] - s[2]);
  const Vec q = at_q * (s[3] + s[4]), q_odd = at_q * (s[3] - s[4]);
  dg[0] = MulAdd(Broadcast(kAtZero), s[0], p + q);
  dg[1] = MulAdd(Broadcast(kP), p_odd, Broadcast(kQ) * q_odd);
  dg[2] = MulAdd(Broadcast(kP2), p, MulAdd(Broadcast(kQ2), q, s[5]));
}

// Two of the six elements of one column of pixels. `part` is Ends, Inner or Outer.
template <typename Part>
static inline void InputColumn(const TileRows& rows, int64_t x, const Vec zero, Vec r[2][6], int column) {
  if (x < 0 || x >= rows.width) {
    r[0][column] = r[1][column] = zero;
    return;
  }
  Vec d[6];
  for (int i = Part::kFrom; i < Part::kTo; ++i) d[i] = Load(rows.row[i] + x * rows.step[i]);
  Part::Input(d, r[0][column], r[1][column]);
}

// Two of the six rows of elements of adjacent tiles, which share two columns: the columns stay in registers.
template <typename Part>
static void TransformInputRows(const TileRows& rows, int64_t x, int64_t tiles, float* out, int64_t plane) {
  const Vec zero = Broadcast(0);
  Vec r[2][6];
  InputColumn<Part>(rows, x, zero, r, 0);
  InputColumn<Part>(rows, x + 1, zero, r, 1);
  for (int64_t t = 0; t < tiles; ++t, x += 4, out += kVec) {
    for (int j = 2; j < 6; ++j) InputColumn<Part>(rows, x + j, zero, r, j);
    if constexpr (Part::kFirst == 0) {
      for (const float* ahead : rows.ahead) {
        for (int j = 2; j < 6; ++j) __builtin_prefetch(ahead + (x + j) * rows.channels);
      }
    }
    for (int i = 0; i < 2; ++i) {
      Vec e[6];
      InputElements(r[i], e);
      float* to = out + 6 * (i == 0 ? Part::kFirst : Part::kSecond) * plane;
      for (int j = 0; j < 6; ++j) Store(to + j * plane, e[j]);
      r[i][0] = r[i][4];
      r[i][1] = r[i][5];
    }
  }
}

struct Tiles : Products {
  static constexpr int kPixels = 6, kInStep = 4, kOutStep = 4;
  static constexpr int kInElements = 36, kElements = 36, kOutElements = 36;
  static constexpr int From(int e) { return e; }
  static constexpr int To(int e) { return e; }
  static constexpr bool IsFirst(int) { return true; }

  // Transforms adjacent tiles, the first of which begins at pixel x (which may be negative). `rows` is for channel 0.
  static void TransformInput(TileRows rows, int64_t x, int64_t tiles, float* out, int64_t plane, int64_t room) {
    for (int64_t c = 0; c < rows.channels; c += kVec, out += room * kVec) {
      TransformInputRows<Ends>(rows, x, tiles, out, plane);
      TransformInputRows<Inner>(rows, x, tiles, out, plane);
      TransformInputRows<Outer>(rows, x, tiles, out, plane);
      for (const float*& row : rows.row) row += kVec;
      for (const float*& row : rows.ahead) row += kVec;
    }
  }

  // Transforms adjacent tiles of products to outputs, of which the first begins at `pixels`; `addend`, if not null, is
  // like these, and may be the same.
  static void TransformOutput(const float* in, int64_t plane, int64_t room, const TilePixels& p, const float* addend,
                              float* pixels) {
    for (int64_t c = 0; c < p.channels; c += kVec, in += room * kVec) {
      for (int64_t t = 0; t < p.tiles; ++t) {
        Vec rows[4][6];
        for (int j = 0; j < 6; ++j) {
          Vec m[6], y[4];
          for (int i = 0; i < 6; ++i) m[i] = Load(in + t * kVec + (6 * i + j) * plane);
          OutputElements(m, y);
          for (int i = 0; i < 4; ++i) rows[i][j] = y[i];
        }
        const int64_t columns = p.width - 4 * t;
        for (int i = 0; i < 4; ++i) {
          if (i >= p.height) break;
          Vec y[4];
          OutputElements(rows[i], y);
          for (int j = 0; j < 4; ++j) {
            if (j >= columns) break;
            const int64_t at = i * p.row + (4 * t + j) * p.channels + c;
            // The next row of tiles is written, and its addend read, soon.
            __builtin_prefetch(pixels + at + 4 * p.row, 1);
            Store(pixels + at, addend == nullptr ? y[j] : Load(addend + at) + y[j]);
          }
        }
      }
    }
  }

  // Transforms the 4 x 4 pixels of an output's gradient.
  static void TransformGradient(const float* pixels, const TilePixels& p, float* out, int64_t plane, int64_t room) {
    const Vec zero = Broadcast(0);
    for (int64_t c = 0; c < p.channels; c += kVec, out += room * kVec) {
      for (int64_t t = 0; t < p.tiles; ++t) {
        const float* from = pixels + 4 * t * p.channels + c;
        const int64_t columns = p.width - 4 * t;
        Vec e[6][4];
        for (int j = 0; j < 4; ++j) {
          Vec dy[4], r[6];
          for (int i = 0; i < 4; ++i) {
            __builtin_prefetch(from + (4 + i) * p.row + j * p.channels);
            dy[i] = i < p.height && j < columns ? Load(from + i * p.row + j * p.channels) : zero;
          }
          GradientElements(dy, r);
          for (int i = 0; i < 6; ++i) e[i][j] = r[i];
        }
        for (int i = 0; i < 6; ++i) {
          Vec r[6];
          GradientElements(e[i], r);
          for (int j = 0; j < 6; ++j) Store(out + t * kVec + (6 * i + j) * plane, r[j]);
        }
      }
    }
  }

  // Transforms the filter for kVec outputs, with elements `step` apart; `turned` rotates it by 180 degrees.
  static void TransformFilter(const float* in, int64_t step, bool turned, float* out, int64_t plane) {
    Vec columns[3][6];
    for (int s = 0; s < 3; ++s) {
      Vec g[3];
      for (int r = 0; r < 3; ++r) g[r] = Load(in + (turned ? 8 - (3 * r + s) : 3 * r + s) * step);
      FilterElements(g, columns[s]);
    }
    for (int i = 0; i < 6; ++i) {
      Vec g[3], u[6];
      for (int s = 0; s < 3; ++s) g[s] = columns[s][i];
      FilterElements(g, u);
      for (int j = 0; j < 6; ++j) Store(out + (6 * i + j) * plane, u[j]);
    }
  }

  // The sum of `pieces` parts of 36 planes to the filter's gradient, for kVec outputs.
  static void FilterGradient(const float* sums, int64_t pieces, int64_t piece, int64_t plane, float* out,
                             int64_t step) {
    Vec columns[6][3];
    for (int j = 0; j < 6; ++j) {
      Vec s[6];
      for (int i = 0; i < 6; ++i) {
        const float* from = sums + (6 * i + j) * plane;
        s[i] = Load(from);
        for (int64_t p = 1; p < pieces; ++p) s[i] += Load(from + p * piece);
      }
      FilterGradientElements(s, columns[j]);
    }
    for (int i = 0; i < 3; ++i) {
      Vec s[6], dg[3];
      for (int j = 0; j < 6; ++j) s[j] = columns[j][i];
      FilterGradientElements(s, dg);
      for (int j = 0; j < 3; ++j) Store(out + (3 * i + j) * step, dg[j]);
    }
  }
};

// ---- Stride 2 ----
//
// Along one dimension, of an output y[i] = w0 x[2i] + w1 x[2i + 1] + w2 x[2i + 2] the even pixels are a convolution
// with (w0, w2) without strides, computed in tiles of two outputs at the points 0, -1 and infinity, and the odd ones
// products. So 25 products give 2 x 2 outputs instead of 36, with sums and differences alone.

// Six or fewer pixels or elements at a time: transforms along both dimensions of a square of vectors, first down its
// columns.
template <typename Scheme, int kFrom, int kTo>
static inline void TransformSquare(const Vec in[kFrom][kFrom], Vec out[kTo][kTo]) {
  Vec columns[kFrom][kTo];
  for (int j = 0; j < kFrom; ++j) {
    Vec d[kFrom];
    for (int i = 0; i < kFrom; ++i) d[i] = in[i][j];
    Scheme::Apply(d, columns[j]);
  }
  for (int i = 0; i < kTo; ++i) {
    Vec d[kFrom];
    for (int j = 0; j < kFrom; ++j) d[j] = columns[j][i];
    Scheme::Apply(d, out[i]);
  }
}

// The parts of the two kinds of strided tiles, which differ in their transforms.
template <typename Scheme>
struct StridedTiles : Products {
  static constexpr int kPixels = Scheme::kPixels, kInStep = Scheme::kInStep, kOutStep = Scheme::kOutStep;
  static constexpr int kIn = Scheme::kIn, kOut = Scheme::kOut;
  static constexpr int kInElements = kIn * kIn, kElements = 25, kOutElements = kOut * kOut;
  static constexpr int From(int e) { return Scheme::kFrom[e / 5] * kIn + Scheme::kFrom[e % 5]; }
  static constexpr int To(int e) { return Scheme::kTo[e / 5] * kOut + Scheme::kTo[e % 5]; }
  static constexpr bool IsFirst(int e) { return e / 5 < kOut && e % 5 < kOut; }

  static void TransformInput(const TileRows& rows, int64_t x, int64_t tiles, float* out, int64_t plane, int64_t room) {
    const Vec zero = Broadcast(0);
    for (int64_t c = 0; c < rows.channels; c += kVec, out += room * kVec) {
      for (int64_t t = 0; t < tiles; ++t) {
        Vec d[kPixels][kPixels], e[kIn][kIn];
        for (int j = 0; j < kPixels; ++j) {
          const int64_t column = x + t * kInStep + j;
          const bool inside = column >= 0 && column < rows.width;
          for (int i = 0; i < kPixels; ++i) d[i][j] = inside ? Load(rows.row[i] + column * rows.step[i] + c) : zero;
        }
        TransformSquare<typename Scheme::Input, kPixels, kIn>(d, e);
        for (int i = 0; i < kIn; ++i) {
          for (int j = 0; j < kIn; ++j) Store(out + t * kVec + (kIn * i + j) * plane, e[i][j]);
        }
      }
    }
  }

  static void TransformOutput(const float* in, int64_t plane, int64_t room, const TilePixels& p, const float* addend,
                              float* pixels) {
    for (int64_t c = 0; c < p.channels; c += kVec, in += room * kVec) {
      for (int64_t t = 0; t < p.tiles; ++t) {
        Vec m[kOut][kOut], y[kOutStep][kOutStep];
        for (int i = 0; i < kOut; ++i) {
          for (int j = 0; j < kOut; ++j) m[i][j] = Load(in + t * kVec + (kOut * i + j) * plane);
        }
        TransformSquare<typename Scheme::Output, kOut, kOutStep>(m, y);
        const int64_t columns = p.width - kOutStep * t;
        for (int i = 0; i < kOutStep; ++i) {
          for (int j = 0; j < kOutStep; ++j) {
            if (i >= p.height || j >= columns) continue;
            const int64_t at = i * p.row + (kOutStep * t + j) * p.channels + c;
            Store(pixels + at, addend == nullptr ? y[i][j] : Load(addend + at) + y[i][j]);
          }
        }
      }
    }
  }

  // The filter is not turned: the tiles of the input's gradient have transforms of their own.
  static void TransformFilter(const float* in, int64_t step, bool, float* out, int64_t plane) {
    Vec g[3][3], u[5][5];
    for (int i = 0; i < 9; ++i) g[i / 3][i % 3] = Load(in + i * step);
    TransformSquare<typename Scheme::Filter, 3, 5>(g, u);
    for (int i = 0; i < 25; ++i) Store(out + i * plane, u[i / 5][i % 5]);
  }

  static void TransformGradient(const float* pixels, const TilePixels& p, float* out, int64_t plane, int64_t room) {
    const Vec zero = Broadcast(0);
    for (int64_t c = 0; c < p.channels; c += kVec, out += room * kVec) {
      for (int64_t t = 0; t < p.tiles; ++t) {
        const int64_t columns = p.width - kOutStep * t;
        Vec dy[2][2], e[3][3];
        for (int i = 0; i < 2; ++i) {
          for (int j = 0; j < 2; ++j) {
            const bool inside = i < p.height && j < columns;
            dy[i][j] = inside ? Load(pixels + i * p.row + (2 * t + j) * p.channels + c) : zero;
          }
        }
        TransformSquare<typename Scheme::Gradient, 2, 3>(dy, e);
        for (int i = 0; i < 9; ++i) Store(out + t * kVec + i * plane, e[i / 3][i % 3]);
      }
    }
  }

  static void FilterGradient(const float* sums, int64_t pieces, int64_t piece, int64_t plane, float* out,
                             int64_t step) {
    Vec s[5][5], dg[3][3];
    for (int i = 0; i < 25; ++i) {
      Vec& sum = s[i / 5][i % 5];
      sum = Load(sums + i * plane);
      for (int64_t p = 1; p < pieces; ++p) sum += Load(sums + p * piece + i * plane);
    }
    TransformSquare<typename Scheme::FilterGradient, 5, 3>(s, dg);
    for (int i = 0; i < 9; ++i) Store(out + i * step, dg[i / 3][i % 3]);
  }
};

// What both directions have in common: sums of neighbours, of inputs in differences and of filters with their ends
// added, take three multiplications instead of four.
inline void NeighbourDifferences(Vec left, Vec middle, Vec right, Vec r[3]) {
  r[0] = left - middle;
  r[1] = middle;
  r[2] = right - middle;
}
inline void NeighbourSums(const Vec m[3], Vec* left, Vec* right) {
  *left = m[0] + m[1];
  *right = m[1] + m[2];
}
template <int kFirst>  // of the filter's ends
struct StridedFilter {
  static inline void Apply(const Vec g[3], Vec u[5]) {
    u[0] = g[kFirst];
    u[1] = g[0] + g[2];
    u[2] = g[2 - kFirst];
    u[3] = u[4] = g[1];
  }
};

// Forward, and the filter's gradient.
struct StridedForward {
  static constexpr int kPixels = 5, kInStep = 4, kOutStep = 2, kIn = 5, kOut = 3;
  static constexpr int kFrom[5] = {0, 1, 2, 3, 4}, kTo[5] = {0, 1, 2, 0, 2};
  struct Input {
    static inline void Apply(const Vec d[5], Vec r[5]) {
      NeighbourDifferences(d[0], d[2], d[4], r);
      r[3] = d[1];
      r[4] = d[3];
    }
  };
  using Filter = StridedFilter<0>;
  struct Output {
    static inline void Apply(const Vec m[3], Vec y[2]) { NeighbourSums(m, &y[0], &y[1]); }
  };
  struct Gradient {
    static inline void Apply(const Vec dy[2], Vec e[3]) {
      e[0] = dy[0];
      e[1] = dy[0] + dy[1];
      e[2] = dy[1];
    }
  };
  struct FilterGradient {
    static inline void Apply(const Vec s[5], Vec dg[3]) {
      NeighbourSums(s, &dg[0], &dg[2]);
      dg[1] = s[3] + s[4];
    }
  };
};

// To the input's gradient: dx[2i] = w0 dy[i] + w2 dy[i - 1] and dx[2i + 1] = w1 dy[i].
struct StridedBackward {
  static constexpr int kPixels = 3, kInStep = 2, kOutStep = 4, kIn = 4, kOut = 5;
  static constexpr int kFrom[5] = {0, 1, 2, 1, 3}, kTo[5] = {0, 1, 2, 3, 4};
  struct Input {
    static inline void Apply(const Vec d[3], Vec r[4]) {
      NeighbourDifferences(d[0], d[1], d[2], r);
      r[3] = d[2];
    }
  };
  using Filter = StridedFilter<2>;
  struct Output {
    static inline void Apply(const Vec m[5], Vec y[4]) {
      NeighbourSums(m, &y[0], &y[2]);
      y[1] = m[3];
      y[3] = m[4];
    }
  };
};

using StridedForwardTiles = StridedTiles<StridedForward>;
using StridedBackwardTiles = StridedTiles<StridedBackward>;
