#include "millrace/ops/kernels/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace millrace {
namespace {

// Below this many multiplications plain loops are faster than a oneDNN call.
constexpr int64_t kLoopWork = 256;
// A product is split if it is worth two hand-offs between threads, into tiles of 40 us to 0.6 ms on a core of 100
// GFLOP/s.
constexpr double kSplitFlops = 5e5;
constexpr double kMinTileFlops = 4e6;
constexpr double kMaxTileFlops = 64e6;
constexpr double kMaxTiles = 64;
// Tiles of large products have the shapes that oneDNN is fastest with: `width` columns if there are at least twice as
// many, and at least `rows` rows. Narrow products are split by rows only.
struct TileShape {
  int64_t width;
  int64_t rows;
};
constexpr TileShape kPlainTile = {512, 64};
constexpr TileShape kTransposedATile = {512, 384};
constexpr TileShape kTransposedBTile = {128, 256};
constexpr int64_t kMinNarrowRows = 8;
constexpr int64_t kNarrow = 256;
constexpr int64_t kFewRows = 64;
// For a smaller k, packing the operands again for every column of tiles does not pay off.
constexpr int64_t kMinDepth = 64;
// Larger products are expected to take 100 us or more.
constexpr double kShortWork = 1e7;
// Plans are never freed, so their number is bounded; further shapes get no primitive.
constexpr size_t kMaxPlans = 4096;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

void MultiplyByLoops(const GemmShape& s, const float* a, const float* b, float* c) {
  const int64_t lda = s.lda(), ldb = s.ldb();
  const int64_t a_row = s.transpose_a ? 1 : lda, a_col = s.transpose_a ? lda : 1;
  for (int64_t i = 0; i < s.m; ++i) {
    float* row = c + i * s.n;
    if (s.transpose_b) {
      for (int64_t j = 0; j < s.n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < s.k; ++p) sum += a[i * a_row + p * a_col] * b[j * ldb + p];
        row[j] = sum;
      }
    } else {
      std::fill(row, row + s.n, 0.0f);
      for (int64_t p = 0; p < s.k; ++p) {
        const float factor = a[i * a_row + p * a_col];
        for (int64_t j = 0; j < s.n; ++j) row[j] += factor * b[p * ldb + j];
      }
    }
  }
}

// Thread-local scratch memory for one tile.
float* TileScratch(int64_t size) {
  thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < size) scratch.resize(size);
  return scratch.data();
}

}  // namespace

const Gemm* Gemm::Get(const GemmShape& shape) {
  static Mutex mu;
  static auto* plans = new absl::flat_hash_map<GemmShape, const Gemm*>();
  {
    MutexLock lock(&mu);
    if (auto it = plans->find(shape); it != plans->end()) return it->second;
  }
  auto* plan = new Gemm(shape);
  bool keep = false;
  {
    MutexLock lock(&mu);
    keep = plans->size() < kMaxPlans;
  }
  // A plan without primitives takes a few bytes and uses dnnl_sgemm.
  if (keep) plan->MakePrimitives().IgnoreError();
  MutexLock lock(&mu);
  auto [it, inserted] = plans->try_emplace(shape, plan);
  if (!inserted) delete plan;
  return it->second;
}

Gemm::Gemm(const GemmShape& shape) : shape_(shape) { ChooseTiles(); }

void Gemm::ChooseTiles() {
  const int64_t m = shape_.m, n = shape_.n, k = shape_.k;
  const bool ta = shape_.transpose_a, tb = shape_.transpose_b;
  use_loops_ = m * n <= kLoopWork && m * n * std::max<int64_t>(k, 1) <= kLoopWork;
  tile_rows_ = m;
  tile_cols_ = n;
  row_tiles_ = col_tiles_ = (m > 0 && n > 0) ? 1 : 0;
  const double flops = 2.0 * m * n * k;
  if (flops < kSplitFlops) return;
  const double tile_flops = std::clamp(flops / 8, kMinTileFlops, kMaxTileFlops);
  // An even number, because a product is split for at least two threads.
  const int64_t wanted = 2 * std::llround(std::clamp(flops / tile_flops, 2.0, kMaxTiles) / 2);
  const TileShape best = ta ? kTransposedATile : tb ? kTransposedBTile : kPlainTile;
  int64_t columns = 1;
  if (n >= 2 * best.width && k >= kMinDepth) {
    columns = std::min(wanted, n / best.width);
    tile_cols_ = CeilDiv(CeilDiv(n, columns), 64) * 64;
  }
  // Every tile transposes its part of B; with few rows that costs as much as the product.
  if (columns == 1 && tb && !ta && m < kFewRows && n >= 128) {
    columns = 2;
    tile_cols_ = CeilDiv(CeilDiv(n, columns), 64) * 64;
  }
  const int64_t min_rows = n >= kNarrow ? best.rows : kMinNarrowRows;
  int64_t rows = std::clamp<int64_t>(m / min_rows, 1, CeilDiv(wanted, columns));
  if (rows * columns == 1 && m >= 2 * kMinNarrowRows) rows = 2;
  tile_rows_ = CeilDiv(m, rows);
  row_tiles_ = CeilDiv(m, tile_rows_);
  col_tiles_ = CeilDiv(n, tile_cols_);
  // oneDNN's fastest code for a transposed B needs a contiguous C.
  dense_tiles_ = col_tiles_ > 1 && tb && !ta;
}

Status Gemm::MakePrimitives() {
  if (use_loops_ || num_tiles() == 0 || shape_.k == 0) return absl::OkStatus();
  using Dims = dnnl::memory::dims;
  constexpr auto kF32 = dnnl::memory::data_type::f32;
  const int64_t m = shape_.m, n = shape_.n, k = shape_.k;
  const int64_t last_rows = m - (row_tiles_ - 1) * tile_rows_;
  const int64_t last_cols = n - (col_tiles_ - 1) * tile_cols_;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      if ((i == 1 && last_rows == tile_rows_) || (j == 1 && last_cols == tile_cols_)) continue;
      const int64_t rows = i == 0 ? tile_rows_ : last_rows, cols = j == 0 ? tile_cols_ : last_cols;
      MR_RETURN_IF_ERROR(onednn::Guarded("matrix product", [&] {
        const dnnl::memory::desc a({rows, k}, kF32, shape_.transpose_a ? Dims{1, shape_.lda()} : Dims{shape_.lda(), 1});
        const dnnl::memory::desc b({k, cols}, kF32, shape_.transpose_b ? Dims{1, shape_.ldb()} : Dims{shape_.ldb(), 1});
        const dnnl::memory::desc c({rows, cols}, kF32, Dims{dense_tiles_ ? cols : n, 1});
        const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(a, b, c), onednn::UserScratchpad(),
                                              onednn::CpuEngine());
        primitives_[i][j] = std::make_unique<onednn::Primitive>(
            dnnl::matmul(pd),
            std::vector<onednn::Primitive::Arg>{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}},
            pd.scratchpad_desc());
      }));
    }
  }
  return absl::OkStatus();
}

GemmTile Gemm::TileAt(int64_t tile, float* c) const {
  const int64_t row = tile / col_tiles_ * tile_rows_, col = tile % col_tiles_ * tile_cols_;
  return {.row = row,
          .col = col,
          .rows = std::min(tile_rows_, shape_.m - row),
          .cols = std::min(tile_cols_, shape_.n - col),
          .data = c + row * shape_.n + col,
          .stride = shape_.n};
}

Status Gemm::RunTile(int64_t tile, const float* a, const float* b, float* c, Epilogue epilogue) const {
  const int64_t n = shape_.n, k = shape_.k, lda = shape_.lda(), ldb = shape_.ldb();
  const bool ta = shape_.transpose_a, tb = shape_.transpose_b;
  const GemmTile t = TileAt(tile, c);
  if (use_loops_ && k > 0) {
    MultiplyByLoops(shape_, a, b, c);
  } else if (k == 0) {
    for (int64_t i = 0; i < t.rows; ++i) std::memset(t.data + i * n, 0, t.cols * sizeof(float));
  } else {
    const float* tile_a = a + (ta ? t.row : t.row * lda);
    const float* tile_b = b + (tb ? t.col * ldb : t.col);
    const onednn::Primitive* primitive = primitives_[t.rows != tile_rows_][t.cols != tile_cols_].get();
    if (primitive != nullptr) {
      float* out = dense_tiles_ ? TileScratch(t.rows * t.cols) : t.data;
      MR_RETURN_IF_ERROR(primitive->Run({const_cast<float*>(tile_a), const_cast<float*>(tile_b), out}));
      for (int64_t i = 0; dense_tiles_ && i < t.rows; ++i) {
        std::memcpy(t.data + i * n, out + i * t.cols, t.cols * sizeof(float));
      }
    } else {
      onednn::SingleThreaded one;
      const dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', t.rows, t.cols, k, 1.0f, tile_a, lda,
                                              tile_b, ldb, 0.0f, t.data, n);
      if (status != dnnl_success) return Internal("oneDNN failed with status ", int{status});
    }
  }
  epilogue(t);
  return absl::OkStatus();
}

bool Gemm::runs_long() const { return static_cast<double>(num_tiles()) * tile_flops() > kShortWork; }

Status Gemm::Run(ThreadPool* pool, const float* a, const float* b, float* c) const {
  return Run(pool, a, b, c, [](const GemmTile&) {});
}

Status Gemm::Run(ThreadPool* pool, const float* a, const float* b, float* c, Epilogue epilogue) const {
  const int64_t tiles = num_tiles();
  if (tiles == 0) return absl::OkStatus();
  if (tiles == 1 || pool == nullptr) {
    for (int64_t i = 0; i < tiles; ++i) MR_RETURN_IF_ERROR(RunTile(i, a, b, c, epilogue));
    return absl::OkStatus();
  }
  onednn::FirstError error;
  pool->ParallelFor(tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) error.Update(RunTile(i, a, b, c, epilogue));
  });
  return error.status();
}

}  // namespace millrace
