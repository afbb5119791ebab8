// Reduction kernels: combine the elements along some dimensions.
//
// An op provides a reducer for each element type:
//
//   template <typename T>
//   struct SumReducer {
//     using Acc = ...;                         // the accumulator type
//     static constexpr bool kKeepsOne = true;  // Load is the identity: one element reduces to itself
//     static constexpr bool kSignless = true;  // optional: signed and unsigned integers give the same bits
//     static Acc Identity();
//     static Acc Load(T x);
//     static Acc Combine(Acc a, Acc b);  // associative and commutative up to rounding
//     static T Finish(Acc a, int64_t count);
//   };
//   MILLRACE_KERNEL(Sum, kCpu, ReduceOf<SumReducer, NumberTypes>);
//
// The order in which elements are combined depends on the shape alone. It is a balanced tree, so the rounding error
// grows with the logarithm of the number of elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include "millrace/ops/kernels/elementwise.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

// The loops of one reducer for one type. Pointers are to elements or to accumulators, as named.
struct ReduceLoops {
  using Row = void (*)(const void* in, int64_t n, void* acc);
  using Columns = void (*)(const void* in, int64_t rows, int64_t stride, int64_t columns, void* acc);

  size_t acc_size = 0;
  // `row` reduces n consecutive elements to one accumulator; `columns` reduces rows to one row of accumulators.
  Row row = nullptr;
  Columns columns = nullptr;
  // The same over accumulators.
  Row acc_row = nullptr;
  Columns acc_columns = nullptr;
  // Null if accumulators are already results.
  void (*finish)(const void* acc, int64_t n, int64_t count, void* out) = nullptr;
  bool keeps_one = false;
};

// At most this many columns are reduced in one call of ReduceLoops::columns.
inline constexpr int64_t kReduceColumns = 256;

// The reduced dimensions of an input, and the resulting output shape.
struct ReduceAxes {
  // Adjacent dimensions that are both reduced or both kept, merged; those of size 1 are omitted.
  struct Run {
    int64_t size;
    bool reduced;
  };
  absl::InlinedVector<Run, 6> runs;
  Shape output;
  int64_t reduced_count = 1;

  // `axes` is a scalar or vector of int32 or int64; negative ones count from the end.
  // INVALID_ARGUMENT for one that is out of range or given twice.
  Status Init(const Shape& input, const Tensor& axes, bool keep_dims);
};

// Reduces input 0 along the axes of input 1 to output 0.
class ReduceKernel : public Kernel {
 public:
  Status Compute(KernelContext& ctx) override;

 protected:
  explicit ReduceKernel(KernelInit& init) { init.Attr("keep_dims", &keep_dims_); }
  ReduceLoops loops_;

 private:
  bool keep_dims_ = false;
};

namespace reduce_internal {

// Adapts a reducer so that accumulators can be reduced like elements.
template <typename R>
struct OverAccumulators {
  using Acc = typename R::Acc;
  static Acc Identity() { return R::Identity(); }
  static Acc Load(Acc a) { return a; }
  static Acc Combine(Acc a, Acc b) { return R::Combine(a, b); }
};

// Folds the right half onto the left until one element is left. With a compile-time width it stays in vector registers.
template <typename R, int kWidth>
typename R::Acc Fold(typename R::Acc* lanes) {
  if constexpr (kWidth == 1) {
    return lanes[0];
  } else {
    for (int j = 0; j < kWidth / 2; ++j) lanes[j] = R::Combine(lanes[j], lanes[j + kWidth / 2]);
    return Fold<R, kWidth / 2>(lanes);
  }
}

// Reduces at least kLanes elements in kLanes parallel accumulators, which are combined at the end.
template <typename R, int kLanes, typename In>
typename R::Acc RowInLanes(const In* x, int64_t n) {
  typename R::Acc lanes[kLanes];
  for (int j = 0; j < kLanes; ++j) lanes[j] = R::Load(x[j]);
  int64_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] = R::Combine(lanes[j], R::Load(x[i + j]));
  }
  for (int j = 0; i + j < n; ++j) lanes[j] = R::Combine(lanes[j], R::Load(x[i + j]));
  return Fold<R, kLanes>(lanes);
}

template <typename R, typename In>
typename R::Acc Row(const In* x, int64_t n) {
  using Acc = typename R::Acc;
  // One vector register for short rows, four for long ones; not for complex numbers, of which a register holds too few,
  // nor for integers that are widened, whose conversions would be unrolled to thousands of instructions.
  constexpr bool kReal = std::is_arithmetic_v<Acc>, kWidened = std::is_integral_v<In> && sizeof(In) < sizeof(Acc);
  constexpr int kFew = kReal ? (sizeof(Acc) <= 4 ? 8 : 4) : 2, kMany = kReal && !kWidened ? 4 * kFew : kFew;
  constexpr int64_t kLeaf = 1024;
  if (n < kFew) {
    Acc acc = R::Identity();
    for (int64_t i = 0; i < n; ++i) acc = R::Combine(acc, R::Load(x[i]));
    return acc;
  }
  if (n < 8 * kMany) return RowInLanes<R, kFew>(x, n);
  if (n > kLeaf) {
    const int64_t left = (n / kLeaf + 1) / 2 * kLeaf;
    return R::Combine(Row<R>(x, left), Row<R>(x + left, n - left));
  }
  return RowInLanes<R, kMany>(x, n);
}

template <typename R, typename In>
void Columns(const In* x, int64_t rows, int64_t stride, int64_t columns, typename R::Acc* acc) {
  using Acc = typename R::Acc;
  constexpr int64_t kLeaf = 32;
  if (rows > kLeaf) {
    const int64_t upper = (rows / kLeaf + 1) / 2 * kLeaf;
    Acc lower[kReduceColumns];
    Columns<R>(x, upper, stride, columns, acc);
    Columns<R>(x + upper * stride, rows - upper, stride, columns, lower);
    for (int64_t j = 0; j < columns; ++j) acc[j] = R::Combine(acc[j], lower[j]);
    return;
  }
  if (rows == 0) {
    for (int64_t j = 0; j < columns; ++j) acc[j] = R::Identity();
    return;
  }
  for (int64_t j = 0; j < columns; ++j) acc[j] = R::Load(x[j]);
  for (int64_t r = 1; r < rows; ++r) {
    const In* row = x + r * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j) acc[j] = R::Combine(acc[j], R::Load(row[j]));
  }
}

template <typename R, typename In>
void RowLoop(const void* in, int64_t n, void* acc) {
  *static_cast<typename R::Acc*>(acc) = Row<R>(static_cast<const In*>(in), n);
}
template <typename R, typename In>
void ColumnsLoop(const void* in, int64_t rows, int64_t stride, int64_t columns, void* acc) {
  Columns<R>(static_cast<const In*>(in), rows, stride, columns, static_cast<typename R::Acc*>(acc));
}
template <typename R, typename T>
void FinishLoop(const void* acc, int64_t n, int64_t count, void* out) {
  for (int64_t i = 0; i < n; ++i) {
    static_cast<T*>(out)[i] = R::Finish(static_cast<const typename R::Acc*>(acc)[i], count);
  }
}

}  // namespace reduce_internal

template <template <typename> class Reducer, typename T>
ReduceLoops MakeReduceLoops() {
  using R = Reducer<T>;
  using Acc = typename R::Acc;
  // Reducers with the same accumulators combine them in the same way, so the types share the loops over accumulators.
  using OverAcc = Reducer<Acc>;
  static_assert(std::is_same_v<typename OverAcc::Acc, Acc>);
  using A = std::conditional_t<OverAcc::kKeepsOne, OverAcc, reduce_internal::OverAccumulators<OverAcc>>;
  ReduceLoops loops;
  loops.acc_size = sizeof(Acc);
  loops.row = &reduce_internal::RowLoop<R, T>;
  loops.columns = &reduce_internal::ColumnsLoop<R, T>;
  if constexpr (std::is_same_v<Acc, T> && R::kKeepsOne) {
    loops.acc_row = loops.row;
    loops.acc_columns = loops.columns;
  } else {
    loops.acc_row = &reduce_internal::RowLoop<A, Acc>;
    loops.acc_columns = &reduce_internal::ColumnsLoop<A, Acc>;
  }
  if constexpr (requires(Acc a) { R::Finish(a, int64_t{1}); }) {
    loops.finish = &reduce_internal::FinishLoop<R, T>;
  } else {
    static_assert(std::is_same_v<Acc, T>);
  }
  loops.keeps_one = R::kKeepsOne;
  return loops;
}

template <template <typename> class Reducer, typename InTypes>
class ReduceOf : public ReduceKernel {
 public:
  explicit ReduceOf(KernelInit& init) : ReduceKernel(init) {
    const bool known = DispatchType(InTypes{}, init.input_type(0), [&](auto tag) {
      using Element = typename decltype(tag)::type;
      loops_ = MakeReduceLoops<Reducer, LoopType<Reducer<Element>, Element>>();
    });
    if (!known) FailDType(init, init.input_type(0));
  }
};

}  // namespace millrace
