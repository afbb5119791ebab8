// Kernels over lines of a tensor on a GPU: x[outer][n][inner] along n. NVRTC reads it as text, behind prelude.h,
// functors.h and indexed_rows.h; nothing else includes it. What they give depends on shapes and values alone.
#pragma once

namespace millrace {

inline constexpr int kLineThreads = 256;

// A tree over lanes: combine(to, from) takes what lane `from` of the same line has into lane `to`. Memory of lane l of
// line h of a block is at l * lines + h.
template <typename Combine>
__device__ inline void CombineLanes(int lane, int lanes, int line, int lines, Combine combine) {
  __syncthreads();
  for (int half = lanes / 2; half > 0; half /= 2) {
    if (lane < half) combine(lane * lines + line, (lane + half) * lines + line);
    __syncthreads();
  }
}

// The place of the first of the best elements of each line. Lines of neighbours (inner > 1) are for neighbouring
// threads: a block of 32 x 8 threads has 32 lines with 8 lanes each then, and otherwise 8 with 32; one of 256 x 1 has
// one.
template <typename Before, typename T, typename Out>
__device__ inline void BestOfLines(int64_t lines, int64_t n, int64_t inner, const T* x, Out* out) {
  using Acc = decltype(Widen(T()));
  __shared__ Acc values[kLineThreads];
  __shared__ int64_t places[kLineThreads];
  const bool columns = inner > 1;
  const int lane = columns ? threadIdx.y : threadIdx.x, lanes = columns ? blockDim.y : blockDim.x;
  const int here = columns ? threadIdx.x : threadIdx.y, block_lines = columns ? blockDim.x : blockDim.y;
  const int64_t line = static_cast<int64_t>(blockIdx.x) * block_lines + here;
  const Before before;
  Acc best = Acc(0);
  int64_t place = -1;  // none
  if (line < lines) {
    const T* const first = x + line / inner * n * inner + line % inner;
    for (int64_t i = lane; i < n; i += lanes) {
      const Acc value = Widen(first[i * inner]);
      if (place < 0 || before(value, best)) {
        best = value;
        place = i;
      }
    }
  }
  values[lane * block_lines + here] = best;
  places[lane * block_lines + here] = place;
  CombineLanes(lane, lanes, here, block_lines, [&](int to, int from) {
    if (places[from] < 0) return;
    const bool first = places[to] < 0 || before(values[from], values[to]);
    const bool tie = !first && !before(values[to], values[from]) && places[from] < places[to];
    if (first || tie) {
      values[to] = values[from];
      places[to] = places[from];
    }
  });
  if (lane == 0 && line < lines) out[line] = static_cast<Out>(places[here]);
}

// Running combinations of a line in one thread.
template <typename Combine, typename T, typename Acc>
__device__ inline void ScanShortLines(int64_t lines, int64_t n, int64_t inner, int exclusive, int reverse, Acc identity,
                                      const T* x, T* y) {
  const Combine combine;
  ForElements(lines, [&](int64_t line) {
    const int64_t start = line / inner * n * inner + line % inner;
    Acc sum = identity;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = start + (reverse ? n - 1 - i : i) * inner;
      const Acc next = combine(sum, Widen(x[at]));
      y[at] = Narrow<T>(exclusive ? sum : next);
      sum = next;
    }
  });
}

// The same for a block of kLineThreads to a line: a tree within each so many elements, and what was before them.
template <typename Combine, typename T, typename Acc>
__device__ inline void ScanLongLines(int64_t lines, int64_t n, int64_t inner, int exclusive, int reverse, Acc identity,
                                     const T* x, T* y) {
  __shared__ Acc sums[kLineThreads];
  const Combine combine;
  const int here = threadIdx.x;
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    const int64_t start = line / inner * n * inner + line % inner;
    Acc before = identity;
    for (int64_t begin = 0; begin < n; begin += kLineThreads) {
      const int64_t i = begin + here, at = start + (reverse ? n - 1 - i : i) * inner;
      sums[here] = i < n ? Acc(Widen(x[at])) : identity;
      __syncthreads();
      for (int step = 1; step < kLineThreads; step *= 2) {
        const Acc left = here >= step ? sums[here - step] : identity;
        __syncthreads();
        if (here >= step) sums[here] = combine(left, sums[here]);
        __syncthreads();
      }
      if (i < n) {
        y[at] = Narrow<T>(!exclusive  ? combine(before, sums[here])
                          : here == 0 ? before
                                      : combine(before, sums[here - 1]));
      }
      before = combine(before, sums[kLineThreads - 1]);
      __syncthreads();
    }
  }
}

// Whether the target of each row of `width` numbers is among its k largest. A block of 32 x 8 threads has 8 rows, one
// of 256 x 1 has one.
template <typename Target>
__device__ inline void InTopKRows(int64_t rows, int64_t width, int64_t k, const float* x, const Target* targets,
                                  bool* out) {
  __shared__ int64_t better[kLineThreads];
  __shared__ bool unordered[kLineThreads];
  const int lane = threadIdx.x, lanes = blockDim.x, here = threadIdx.y, block_rows = blockDim.y;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * block_rows + here;
  const int64_t target = row < rows ? static_cast<int64_t>(targets[row]) : -1;
  int64_t count = 0;
  bool odd = target < 0 || target >= width;  // a class that does not exist, or a row that cannot be ordered
  if (!odd) {
    const float* const numbers = x + row * width;
    const float value = numbers[target];
    for (int64_t i = lane; i < width; i += lanes) {
      odd |= numbers[i] - numbers[i] != 0;  // neither NaN nor infinite
      count += numbers[i] > value ? 1 : 0;
    }
  }
  better[lane * block_rows + here] = count;
  unordered[lane * block_rows + here] = odd;
  CombineLanes(lane, lanes, here, block_rows, [&](int to, int from) {
    better[to] += better[from];
    unordered[to] = unordered[to] || unordered[from];
  });
  if (lane == 0 && row < rows) out[row] = !unordered[here] && better[here] < k;
}

// The order of the elements of a row, whose places are sorted as keys.
template <typename T>
struct TopKOrder {
  const T* x;
  int64_t n;
  __device__ bool operator()(int64_t row, int a, int b) const {
    return TopKBeforeFn()(Widen(x[row * n + a]), a, Widen(x[row * n + b]), b);
  }
};

// out[outer][depth][inner] of indices[outer][inner].
template <typename T, typename Index>
__device__ inline void OneHotElements(int64_t outer, int64_t depth, int64_t inner, const Index* indices, const T* on,
                                      const T* off, T* out) {
  const T lit = *on, dark = *off;
  ForRows(outer * depth, [&](int64_t row) {
    const int64_t which = row / depth, level = row - which * depth;
    ForColumns(inner, [&](int64_t i) {
      out[row * inner + i] = static_cast<int64_t>(indices[which * inner + i]) == level ? lit : dark;
    });
  });
}

// Negative widths of the band keep everything.
template <typename T>
__device__ inline void BandOfMatrices(int64_t matrices, int64_t height, int64_t width, int64_t lower, int64_t upper,
                                      const T* x, T* y) {
  ForRows(matrices * height, [&](int64_t row) {
    const int64_t i = row % height;
    ForColumns(width, [&](int64_t j) {
      const bool kept = (lower < 0 || i - j <= lower) && (upper < 0 || j - i <= upper);
      y[row * width + j] = kept ? x[row * width + j] : T{};
    });
  });
}

// out[targets[i]] = x[i], by rows; none for a negative target. Targets differ.
template <typename T>
__device__ inline void PutRows(int64_t rows, int64_t width, const int64_t* targets, const T* x, T* out) {
  ForRows(rows, [&](int64_t row) {
    const int64_t to = targets[row];
    if (to < 0) return;
    ForColumns(width, [&](int64_t i) { out[to * width + i] = x[row * width + i]; });
  });
}

}  // namespace millrace
