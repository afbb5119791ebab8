// Softmax and the cross entropies on a GPU. NVRTC reads it as text, behind prelude.h and functors.h; nothing else
// includes it.
//
// blockDim.x threads, a power of two and at most 256 / blockDim.y, share a row; a block has blockDim.y rows. What they
// add up, they do in an order that depends on the row's width alone.
#pragma once

namespace millrace {

inline constexpr int kRowThreads = 256;

// Combines what each thread of a row has. All threads of the block call it.
template <typename Combine, typename C>
__device__ inline C OverRow(C mine) {
  __shared__ C shared[kRowThreads];
  C* const here = shared + threadIdx.y * blockDim.x + threadIdx.x;
  *here = mine;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) *here = Combine()(*here, here[half]);
    __syncthreads();
  }
  const C all = shared[threadIdx.y * blockDim.x];
  __syncthreads();
  return all;
}

// A row of logits, its greatest element and the sum of the exponentials of the distances to that.
template <typename T>
struct RowOfLogits {
  using C = decltype(Widen(T()));

  // `step` is 0 if the row is one element, repeated.
  __device__ RowOfLogits(const T* x, int64_t step, int64_t width, bool is_row) : x(x), step(step) {
    C most = Limits<C>::Least();
    for (int64_t i = threadIdx.x; is_row && i < width; i += blockDim.x) most = MaximumFn()(most, Widen(x[i * step]));
    greatest = OverRow<MaximumFn>(most);
    C part = C(0);
    for (int64_t i = threadIdx.x; is_row && i < width; i += blockDim.x) part += std::exp(shifted(i));
    sum = OverRow<AddFn>(part);
  }
  __device__ C shifted(int64_t i) const { return Widen(x[i * step]) - greatest; }

  const T* const x;
  const int64_t step;
  C greatest, sum;
};

__device__ inline int64_t RowOfThread() { return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; }

template <bool kLog, typename T>
__device__ inline void SoftmaxRow(int64_t rows, int64_t width, const T* x, T* y) {
  const int64_t row = RowOfThread();
  const RowOfLogits<T> logits(x + (row < rows ? row : 0) * width, 1, width, row < rows);
  if (row >= rows) return;
  using C = typename RowOfLogits<T>::C;
  const C scale = C(1) / logits.sum, log_sum = std::log(logits.sum);
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const C shifted = logits.shifted(i);
    y[row * width + i] = Narrow<T>(kLog ? shifted - log_sum : std::exp(shifted) * scale);
  }
}

// The distances between rows and between columns: 0 where one is repeated.
struct RowSteps {
  int64_t x_row, x_column, label_row, label_column;
};

template <typename T>
__device__ inline void CrossEntropyRow(int64_t rows, int64_t width, const RowSteps& steps, const T* x, const T* labels,
                                       T* loss, T* backprop) {
  const int64_t row = RowOfThread(), safe = row < rows ? row : 0;
  const RowOfLogits<T> logits(x + safe * steps.x_row, steps.x_column, width, row < rows);
  using C = typename RowOfLogits<T>::C;
  const C scale = C(1) / logits.sum, log_sum = std::log(logits.sum);
  C part = C(0);
  for (int64_t i = threadIdx.x; row < rows && i < width; i += blockDim.x) {
    const C shifted = logits.shifted(i), p = Widen(labels[row * steps.label_row + i * steps.label_column]);
    part += p * (log_sum - shifted);
    backprop[row * width + i] = Narrow<T>(std::exp(shifted) * scale - p);
  }
  const C total = OverRow<AddFn>(part);
  if (row < rows && threadIdx.x == 0) loss[row] = Narrow<T>(total);
}

// A class that is not there gives NaN, as in TensorFlow: the host, which could make it an error, does not see it.
template <typename T, typename Index>
__device__ inline void SparseCrossEntropyRow(int64_t rows, int64_t width, const T* x, const Index* classes, T* loss,
                                             T* backprop) {
  const int64_t row = RowOfThread();
  const RowOfLogits<T> logits(x + (row < rows ? row : 0) * width, 1, width, row < rows);
  if (row >= rows) return;
  using C = typename RowOfLogits<T>::C;
  const int64_t wanted = classes[row];
  const bool is_class = wanted >= 0 && wanted < width;
  const C none = C(0) * Limits<C>::Greatest(), scale = is_class ? C(1) / logits.sum : none;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    backprop[row * width + i] = Narrow<T>(std::exp(logits.shifted(i)) * scale - (i == wanted ? C(1) : C(0)));
  if (threadIdx.x == 0) loss[row] = Narrow<T>(is_class ? std::log(logits.sum) - logits.shifted(wanted) : none);
}

}  // namespace millrace
