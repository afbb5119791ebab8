// Reductions on a GPU. NVRTC reads it as text, behind prelude.h and functors.h; nothing else includes it.
//
// The order in which elements are combined depends on shapes alone: each of a fixed number of lanes combines every
// so-manieth element of its piece, a tree combines the lanes, and the pieces are combined in the same way.
#pragma once

namespace millrace {

// What is reduced, as ops/kernels/cuda/reduction_program.h has it too. Dimensions are outermost first, strides in
// elements.
struct Reduction {
  int64_t outputs, count;  // `count` elements for each output
  int64_t step;            // elements of a piece
  int kept_rank, reduced_rank;
  int by_columns;  // the lanes of a block are neighbours in another output's elements, not in one's
  int64_t kept_size[12], kept_stride[12];
  int64_t reduced_size[12], reduced_stride[12];
};

__device__ inline int64_t OffsetOf(int64_t i, int rank, const int64_t* size, const int64_t* stride) {
  int64_t offset = 0;
  for (int d = rank - 1; d > 0; --d) {
    const int64_t next = i / size[d];
    offset += (i - next * size[d]) * stride[d];
    i = next;
  }
  return rank == 0 ? 0 : offset + i * stride[0];
}

inline constexpr int kReduceThreads = 256;

// A block of 32 x 8 threads reduces 32 outputs with 8 lanes each, or 8 with 32, or one of 256 x 1 threads one output:
// blockDim.x is the number of lanes by rows and of outputs by columns. blockIdx.y is the piece. `load` is of an element
// to an accumulator, `store` of an accumulator to a result.
template <typename Acc, typename Combine, typename In, typename Load, typename Store>
__device__ inline void ReducePiece(const Reduction& r, const In* in, Acc identity, Load load, Store store) {
  __shared__ __align__(16) unsigned char memory[kReduceThreads * sizeof(Acc)];
  Acc* const shared = reinterpret_cast<Acc*>(memory);
  const bool columns = r.by_columns != 0;
  const int lane = columns ? threadIdx.y : threadIdx.x, lanes = columns ? blockDim.y : blockDim.x;
  const int here = columns ? threadIdx.x : threadIdx.y, outputs = columns ? blockDim.x : blockDim.y;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * outputs + here;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * r.step;
  const int64_t end = begin + r.step < r.count ? begin + r.step : r.count;
  const Combine combine;
  Acc acc = identity;
  if (output < r.outputs) {
    const In* const base = in + OffsetOf(output, r.kept_rank, r.kept_size, r.kept_stride);
    bool first = true;
    for (int64_t i = begin + lane; i < end; i += lanes) {
      const Acc x = load(base[OffsetOf(i, r.reduced_rank, r.reduced_size, r.reduced_stride)]);
      acc = first ? x : combine(acc, x);
      first = false;
    }
  }
  const int64_t used = end - begin < lanes ? end - begin : lanes;  // lanes that have an element
  Acc* const mine = shared + lane * outputs + here;
  *mine = acc;
  __syncthreads();
  for (int half = lanes / 2; half > 0; half /= 2) {
    if (lane < half && lane + half < used) *mine = combine(*mine, mine[half * outputs]);
    __syncthreads();
  }
  if (lane == 0 && output < r.outputs) store(static_cast<int64_t>(blockIdx.y) * r.outputs + output, *mine);
}

}  // namespace millrace
