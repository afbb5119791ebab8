// Rows chosen by indices on a GPU: gathered, and updated in an order that follows from the indices alone. NVRTC reads
// it as text, behind prelude.h and functors.h; nothing else includes it.
//
// No atomic operations: indices are sorted together with their positions, and what several indices do to one row is
// done by one thread for each of its elements, in the order of the positions, as on the CPU.
#pragma once

namespace millrace {

// How an index names a row: by its coordinates, outermost first. As ops/kernels/cuda/gpu_rows.h has it too.
struct RowIndex {
  int depth;         // coordinates of one index
  int64_t size[12];  // of the dimensions that they point into
};

// The number of the row; -1 if a coordinate is out of range.
template <typename Index>
__device__ inline int64_t RowOf(const RowIndex& form, const Index* index) {
  int64_t row = 0;
  for (int d = 0; d < form.depth; ++d) {
    const int64_t at = static_cast<int64_t>(index[d]);
    if (at < 0 || at >= form.size[d]) return -1;
    row = row * form.size[d] + at;
  }
  return row;
}

// What is gathered: params are [batch][outer][axis][inner], indices [batch][count], results [batch][outer][count]
// [inner]. As gpu_rows.h has it too.
struct GatherForm {
  int64_t outer, axis, count;
  RowIndex index;  // into `axis` rows
};

// `rows` are those of the result. An index out of range gives zeros.
template <typename T, typename Index>
__device__ inline void GatherRows(const GatherForm& form, int64_t rows, int64_t inner, const T* params,
                                  const Index* indices, T* out) {
  ForRows(rows, [&](int64_t row) {
    const int64_t plane = row / form.count, batch = plane / form.outer;
    const int64_t at = batch * form.count + (row - plane * form.count);
    const int64_t chosen = RowOf(form.index, indices + at * form.index.depth);
    const T* const from = params + (plane * form.axis + chosen) * inner;
    T* const to = out + row * inner;
    ForColumns(inner, [&](int64_t column) { to[column] = chosen < 0 ? T{} : from[column]; });
  });
}

// An index: in the upper half the number of its row, in the lower one its position among the indices. All differ.
using Slot = uint64_t;
inline constexpr unsigned kNoRow = 0xffffffff;  // of an index out of range

template <typename Index>
__device__ inline void MakeSlots(int64_t n, const RowIndex& form, const Index* indices, Slot* slots) {
  ForElements(n, [&](int64_t i) {
    const int64_t row = RowOf(form, indices + i * form.depth);
    slots[i] = static_cast<Slot>(row < 0 ? kNoRow : static_cast<unsigned>(row)) << 32 | static_cast<Slot>(i);
  });
}

// Sorting: of each row of n keys, first pieces of kSortedByBlock, then longer and longer runs. before(row, a, b) is a
// strict order, in which no two keys of a row are equal.
inline constexpr int kSortedByBlock = 256;

// One block for each piece of each row. `in` and `out` may be the same.
template <typename Key, typename Before>
__device__ inline void SortPieces(int64_t n, const Key* in, Key* out, Before before) {
  __shared__ Key piece[kSortedByBlock];
  const int64_t pieces = (n + kSortedByBlock - 1) / kSortedByBlock, row = blockIdx.x / pieces;
  const int64_t begin = (blockIdx.x - row * pieces) * kSortedByBlock;
  const int here = threadIdx.x, count = static_cast<int>(n - begin < kSortedByBlock ? n - begin : kSortedByBlock);
  if (here < count) piece[here] = in[row * n + begin + here];
  __syncthreads();
  if (here >= count) return;
  int rank = 0;
  for (int i = 0; i < count; ++i) rank += before(row, piece[i], piece[here]) ? 1 : 0;
  out[row * n + begin + rank] = piece[here];
}

// Merges each two neighbouring sorted runs of `run` keys: a key's place is its own number and that of the keys of the
// other run before it.
template <typename Key, typename Before>
__device__ inline void MergeRuns(int64_t rows, int64_t n, int64_t run, const Key* in, Key* out, Before before) {
  ForElements(rows * n, [&](int64_t i) {
    const int64_t row = i / n, at = i - row * n, mine = at / run, other = mine ^ 1;
    const Key key = in[i];
    const Key* const keys = in + row * n;
    int64_t low = other * run < n ? other * run : n;
    int64_t high = low + run < n ? low + run : n;
    const int64_t begin = low;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (before(row, keys[middle], key)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    out[row * n + (mine & ~int64_t{1}) * run + (at - mine * run) + (low - begin)] = key;
  });
}

// Calls update(row, column, next) for every element of every row that one of n sorted slots names. `next` gives the
// positions of the row's indices in their order, and at the end -1.
struct Positions {
  const Slot* slots;
  int64_t n, at;
  __device__ int64_t operator()() {
    const int64_t here = at++;
    if (here >= n || slots[here] >> 32 != slots[here - 1] >> 32) return -1;
    return static_cast<int64_t>(slots[here] & 0xffffffff);
  }
};

template <typename Update>
__device__ inline void ForUpdatedRows(int64_t n, int64_t columns, const Slot* slots, Update update) {
  ForRows(n, [&](int64_t i) {
    const Slot slot = slots[i];
    const unsigned row = static_cast<unsigned>(slot >> 32);
    // Only the first slot of a row does something.
    if (row == kNoRow || (i > 0 && slots[i - 1] >> 32 == slot >> 32)) return;
    const int64_t first = static_cast<int64_t>(slot & 0xffffffff);
    ForColumns(columns, [&](int64_t column) {
      update(static_cast<int64_t>(row), column, first, Positions{slots, n, i + 1});
    });
  });
}

// The combination of each element with those of `updates`, whose row p belongs to the index at position p; if they do
// not move, there is one for all. `combine` is of a wide element and a wide update. With `rounds`, what it gives is
// rounded to T each time.
template <typename T, bool rounds, typename Combine>
__device__ inline void CombineRows(int64_t n, int64_t columns, const Slot* slots, const T* updates, int moves,
                                   T* values, Combine combine) {
  ForUpdatedRows(n, columns, slots, [&](int64_t row, int64_t column, int64_t position, Positions next) {
    T* const to = values + row * columns + column;
    auto acc = Widen(*to);
    for (; position >= 0; position = next()) {
      acc = combine(acc, Widen(updates[moves ? position * columns + column : 0]));
      if (rounds) acc = Widen(Narrow<T>(acc));
    }
    *to = Narrow<T>(acc);
  });
}

// How many slots each row has that has one.
__device__ inline void CountSlots(int64_t n, const Slot* slots, int64_t* counts) {
  ForElements(n, [&](int64_t i) {
    const Slot row = slots[i] >> 32;
    if (row == kNoRow || (i > 0 && slots[i - 1] >> 32 == row)) return;
    int64_t count = 1;
    while (i + count < n && slots[i + count] >> 32 == row) ++count;
    counts[row] = count;
  });
}

// What a sum of so many rows is multiplied by: ops/sparse/sparse_segment.h's SegmentFactor.
inline constexpr int kScaleSum = 0, kScaleMean = 1, kScaleSqrtN = 2;
__device__ inline double FactorOf(int scale, int64_t count) {
  if (scale == kScaleSum) return 1;
  const double n = static_cast<double>(count);
  return 1 / (scale == kScaleMean ? n : std::sqrt(n));
}

// out[row] = the scaled sum of x[source[p]] over the positions p of the row's slots. A source out of range counts as a
// row of zeros.
template <typename T, typename Index>
__device__ inline void SumChosenRows(int64_t n, int64_t columns, int scale, const Slot* slots, const Index* source,
                                     int64_t source_rows, const T* x, T* out) {
  using Acc = decltype(Widen(T()));
  ForUpdatedRows(n, columns, slots, [&](int64_t row, int64_t column, int64_t position, Positions next) {
    Acc sum = 0;
    int64_t count = 0;
    for (; position >= 0; position = next(), ++count) {
      const int64_t from = static_cast<int64_t>(source[position]);
      if (from >= 0 && from < source_rows) sum += Widen(x[from * columns + column]);
    }
    const double factor = FactorOf(scale, count);
    out[row * columns + column] = Narrow<T>(factor == 1 ? sum : sum * static_cast<Acc>(factor));
  });
}

// out[row] = the sum of x[source[p]], each scaled as one of counts[source[p]] rows.
template <typename T, typename Index>
__device__ inline void AddBackRows(int64_t n, int64_t columns, int scale, const Slot* slots, const Index* source,
                                   int64_t source_rows, const int64_t* counts, const T* x, T* out) {
  using Acc = decltype(Widen(T()));
  ForUpdatedRows(n, columns, slots, [&](int64_t row, int64_t column, int64_t position, Positions next) {
    Acc sum = 0;
    for (; position >= 0; position = next()) {
      const int64_t from = static_cast<int64_t>(source[position]);
      if (from < 0 || from >= source_rows) continue;
      sum += static_cast<Acc>(FactorOf(scale, counts[from])) * Widen(x[from * columns + column]);
    }
    out[row * columns + column] = Narrow<T>(sum);
  });
}

}  // namespace millrace
