// Sums over columns on a GPU: of a channel's elements, of a filter's products. NVRTC reads it as text, behind
// prelude.h; nothing else includes it.
//
// A column is summed in pieces, a piece by lanes, and a tree joins the lanes; a second launch joins the pieces in the
// same way. The order depends on the sizes alone (ops/nn/cuda/column_plan.h).
#pragma once

namespace millrace {

struct Columns {
  int64_t columns, count;  // `count` elements in each
  int64_t step;            // elements of a piece
  int by_columns;          // neighbouring threads have neighbouring columns, not neighbouring elements of one
};

inline constexpr int kColumnThreads = 256;

// Acc() is of no elements, and a.Join(b) adds those of b. part(column, begin, end, step) is of every step-th element,
// store(piece, column, acc) takes what a block has of one column. All threads of the block call it.
template <typename Acc, typename Part, typename Store>
__device__ inline void OverColumns(const Columns& s, Part part, Store store) {
  __shared__ __align__(16) unsigned char memory[kColumnThreads * sizeof(Acc)];
  const bool columns = s.by_columns != 0;
  const int lane = columns ? threadIdx.y : threadIdx.x, lanes = columns ? blockDim.y : blockDim.x;
  const int here = columns ? threadIdx.x : threadIdx.y, width = columns ? blockDim.x : blockDim.y;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * width + here;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * s.step;
  const int64_t end = begin + s.step < s.count ? begin + s.step : s.count;
  Acc* const mine = reinterpret_cast<Acc*>(memory) + lane * width + here;
  *mine = column < s.columns ? part(column, begin + lane, end, lanes) : Acc();
  __syncthreads();
  for (int half = lanes / 2; half > 0; half /= 2) {
    if (lane < half) mine->Join(mine[half * width]);
    __syncthreads();
  }
  if (lane == 0 && column < s.columns) store(static_cast<int64_t>(blockIdx.y), column, *mine);
}

// The pieces of OverColumns, which are stored as [piece, column].
template <typename Acc>
struct JoinPieces {
  const Acc* pieces;
  int64_t columns;
  __device__ Acc operator()(int64_t column, int64_t begin, int64_t end, int64_t step) const {
    Acc acc = Acc();
    for (int64_t i = begin; i < end; i += step) acc.Join(pieces[i * columns + column]);
    return acc;
  }
};
template <typename Acc>
struct KeepPieces {
  Acc* pieces;
  int64_t columns;
  __device__ void operator()(int64_t piece, int64_t column, const Acc& acc) const {
    pieces[piece * columns + column] = acc;
  }
};

template <typename C>
struct ColumnSum {
  C sum = C(0);
  __device__ void Join(const ColumnSum& other) { sum = sum + other.sum; }
};

}  // namespace millrace
