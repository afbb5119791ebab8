#include "millrace/ops/kernels/panel_product.h"

#include <algorithm>

#include "millrace/ops/kernels/vec.h"
#include "millrace/ops/kernels/wide_vec.h"

namespace millrace {
namespace {

// Columns of a panel: two of the widest vectors, for either code.
constexpr int64_t kPanel = 32;

#define MILLRACE_LOOPS "millrace/ops/kernels/panel_loops.h"
#include "millrace/ops/kernels/both_widths.h"

}  // namespace

int64_t PackedFloats(int64_t k, int64_t n) { return k * ((n + kPanel - 1) / kPanel * kPanel); }

void PackPanels(const float* b, const MatrixView& view, float* packed) {
  for (int64_t col = 0; col < view.cols; col += kPanel) {
    const int64_t width = std::min(kPanel, view.cols - col);
    for (int64_t p = 0; p < view.rows; ++p, packed += kPanel) {
      const float* const from = b + p * view.row_stride + col * view.col_stride;
      if (width == kPanel && view.col_stride == 1) {
        std::copy_n(from, kPanel, packed);
      } else if (width == kPanel && view.row_stride == 1 && p % kVec == 0 && p + kVec <= view.rows) {
        // Eight rows of a transposed matrix at once.
        for (int64_t j = 0; j < kPanel; j += kVec) {
          Transpose8x8(from + j * view.col_stride, view.col_stride, packed + j, kPanel);
        }
        p += kVec - 1;
        packed += (kVec - 1) * kPanel;
      } else {
        for (int64_t j = 0; j < width; ++j) packed[j] = from[j * view.col_stride];
        std::fill(packed + width, packed + kPanel, 0.0f);
      }
    }
  }
}

void AddPanelProduct(const float* a, int64_t lda, int64_t rows, const float* packed, int64_t k, int64_t n, float* c,
                     int64_t ldc) {
#if defined(MILLRACE_WIDE_VECTORS)
  if (HasWideVectors()) {
    wide::AddPanels(a, lda, rows, packed, k, n, c, ldc);
    return;
  }
#endif
  narrow::AddPanels(a, lda, rows, packed, k, n, c, ldc);
}

}  // namespace millrace
