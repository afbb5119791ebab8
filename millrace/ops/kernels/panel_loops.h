// The loops of panel_product.cc, compiled once for each width of vectors (both_widths.h).

// Rows whose sums are in registers at once, and vectors of each.
inline constexpr int kTileRows = kVec == 16 ? 8 : 4;
inline constexpr int kTileVecs = kVec == 16 ? 2 : 2;
inline constexpr int64_t kTileCols = kTileVecs * kVec;

// c[kRows, kTileCols] += a[kRows, k] times a part of a panel.
template <int kRows>
inline void AddTile(const float* a, int64_t lda, const float* panel, int64_t k, float* c, int64_t ldc) {
  Vec sums[kRows][kTileVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVecs; ++v) sums[r][v] = Load(c + r * ldc + v * kVec);
  }
  for (int64_t p = 0; p < k; ++p, panel += kPanel) {
    Vec b[kTileVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVecs; ++v) b[v] = Load(panel + v * kVec);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec x = Broadcast(a[r * lda + p]);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) sums[r][v] = MulAdd(x, b[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVecs; ++v) Store(c + r * ldc + v * kVec, sums[r][v]);
  }
}

inline void AddRows(const float* a, int64_t lda, int64_t rows, const float* panel, int64_t k, float* c, int64_t ldc) {
  for (; rows >= kTileRows; rows -= kTileRows, a += kTileRows * lda, c += kTileRows * ldc) {
    AddTile<kTileRows>(a, lda, panel, k, c, ldc);
  }
  for (; rows >= 2; rows -= 2, a += 2 * lda, c += 2 * ldc) AddTile<2>(a, lda, panel, k, c, ldc);
  if (rows == 1) AddTile<1>(a, lda, panel, k, c, ldc);
}

void AddPanels(const float* a, int64_t lda, int64_t rows, const float* packed, int64_t k, int64_t n, float* c,
               int64_t ldc) {
  for (int64_t col = 0; col < n; col += kPanel, packed += k * kPanel) {
    for (int64_t part = 0; part < kPanel && col + part < n; part += kTileCols) {
      if (n - col - part >= kTileCols) {
        AddRows(a, lda, rows, packed + part, k, c + col + part, ldc);
        continue;
      }
      // The last columns, one row after the other by way of a whole tile.
      const int64_t width = n - col - part;
      for (int64_t r = 0; r < rows; ++r) {
        float tile[kTileCols] = {};
        float* const to = c + r * ldc + col + part;
        for (int64_t j = 0; j < width; ++j) tile[j] = to[j];
        AddTile<1>(a + r * lda, lda, packed + part, k, tile, kTileCols);
        for (int64_t j = 0; j < width; ++j) to[j] = tile[j];
      }
    }
  }
}
