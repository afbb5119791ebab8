// Products of float matrices: C = op(A) op(B), row-major, where op is identity or transposition.
//
//   const Gemm* gemm = Gemm::Get({.m = 100, .n = 10, .k = 784});
//   MR_RETURN_IF_ERROR(gemm->Run(pool, a, b, c));
//
// The division of a product into tiles depends only on its shape, and each tile is computed by one thread, so the
// result does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "millrace/base/status.h"
#include "millrace/base/thread_pool.h"
#include "millrace/ops/kernels/onednn.h"

namespace millrace {

struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // A is stored [k, m]
  bool transpose_b = false;  // B is stored [n, k]
  // The row stride if A or B is a part of a larger matrix; 0 means contiguous.
  int64_t a_stride = 0;
  int64_t b_stride = 0;

  int64_t lda() const { return a_stride != 0 ? a_stride : transpose_a ? m : k; }
  int64_t ldb() const { return b_stride != 0 ? b_stride : transpose_b ? k : n; }

  friend bool operator==(const GemmShape& a, const GemmShape& b) {
    return a.m == b.m && a.n == b.n && a.k == b.k && a.transpose_a == b.transpose_a && a.transpose_b == b.transpose_b &&
           a.a_stride == b.a_stride && a.b_stride == b.b_stride;
  }
  template <typename H>
  friend H AbslHashValue(H h, const GemmShape& s) {
    return H::combine(std::move(h), s.m, s.n, s.k, s.transpose_a, s.transpose_b, s.a_stride, s.b_stride);
  }
};

// A part of C that has just been computed and is still in the cache.
struct GemmTile {
  int64_t row, col;
  int64_t rows, cols;
  float* data;  // element (row, col); rows are `stride` apart
  int64_t stride;
};

// Immutable and thread-safe.
class Gemm {
 public:
  using Epilogue = absl::FunctionRef<void(const GemmTile&)>;

  // The plan for a shape; created on the first call and never destroyed.
  static const Gemm* Get(const GemmShape& shape);

  const GemmShape& shape() const { return shape_; }
  int64_t num_tiles() const { return row_tiles_ * col_tiles_; }
  // Floating-point operations per tile, to decide how many tiles are worth a thread.
  double tile_flops() const { return 2.0 * tile_rows_ * tile_cols_ * shape_.k; }

  // True when all tiles together take a while, some 100 us or more: a kernel then hands over first.
  bool runs_long() const;

  // All tiles, over `pool` when it is not null. `epilogue` is called for each tile by the thread that
  // computed it.
  Status Run(ThreadPool* pool, const float* a, const float* b, float* c) const;
  Status Run(ThreadPool* pool, const float* a, const float* b, float* c, Epilogue epilogue) const;

  // Computes one tile; zeros if k is 0.
  Status RunTile(int64_t tile, const float* a, const float* b, float* c, Epilogue epilogue) const;

 private:
  explicit Gemm(const GemmShape& shape);
  void ChooseTiles();
  Status MakePrimitives();
  GemmTile TileAt(int64_t tile, float* c) const;

  const GemmShape shape_;
  int64_t tile_rows_ = 0, tile_cols_ = 0;
  int64_t row_tiles_ = 0, col_tiles_ = 0;
  bool use_loops_ = false;
  bool dense_tiles_ = false;  // computed in scratch memory, then copied into C
  // Indexed by [tile in the smaller last row][tile in the smaller last column]; null if there is no such tile, or if
  // oneDNN has no primitive and dnnl_sgemm is used.
  std::unique_ptr<onednn::Primitive> primitives_[2][2];
};

}  // namespace millrace
