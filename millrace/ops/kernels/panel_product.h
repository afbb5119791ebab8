// Products of a few rows with a matrix that is packed once and used many times, as in the steps of a recurrent network:
//
//   std::vector<float> packed(PackedFloats(k, n));
//   PackPanels(b, {.rows = k, .cols = n, .row_stride = n}, packed.data());
//   AddPanelProduct(a, k, rows, packed.data(), k, n, c, n);          // c += a b
//
// Runs on the calling thread. An element of c is the sum of its products in the order of k, whatever `rows` is.
#pragma once

#include <cstdint>

namespace millrace {

// A matrix with any strides; those of a transposed one are exchanged.
struct MatrixView {
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 1;
};

// The size of a packed matrix [k, n].
int64_t PackedFloats(int64_t k, int64_t n);
void PackPanels(const float* b, const MatrixView& view, float* packed);
// c[rows, n] += a[rows, k] b, with rows that are lda and ldc floats apart.
void AddPanelProduct(const float* a, int64_t lda, int64_t rows, const float* packed, int64_t k, int64_t n, float* c,
                     int64_t ldc);

}  // namespace millrace
