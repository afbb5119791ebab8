// The element operations of the scatter ops, for all types.
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/state/scatter_kernel.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <ScatterOp op, typename T>
T Combine(const T& a, const T& b) {
  if constexpr (op == ScatterOp::kUpdate) return b;
  if constexpr (op == ScatterOp::kAdd) return static_cast<T>(a + b);
  if constexpr (op == ScatterOp::kSub) return static_cast<T>(a - b);
  if constexpr (op == ScatterOp::kMul) return static_cast<T>(a * b);
  if constexpr (op == ScatterOp::kMin) return LesserOfFn()(a, b);
  if constexpr (op == ScatterOp::kMax) return GreaterOfFn()(a, b);
  if constexpr (op == ScatterOp::kDiv) {
    // The smallest integer divided by -1 would trap; it wraps instead.
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      using U = std::make_unsigned_t<T>;
      if (b == T(-1)) return static_cast<T>(U(0) - static_cast<U>(a));
    }
    return static_cast<T>(a / b);
  }
}

template <ScatterOp op, typename T>
void ApplySlices(const SliceAddresses& where, const SliceBatch& batch, const Tensor& updates, Tensor* value) {
  const bool scalar = updates.num_elements() == 1 && where.shape.num_elements() != 1;
  T* const data = value->raw<T>();
  const T* const all = updates.raw<T>();
  const int64_t size = where.size;  // a local copy that stores cannot alias, so that the loops vectorise
  for (int64_t k = 0; k < batch.n; ++k) {
    PrefetchAhead(batch, k, where, data, scalar ? data : all);
    const int64_t slice = batch.slices[k];
    T* const to = data + where.offsets[slice];
    if (scalar) {
      const T from = *all;
      for (int64_t i = 0; i < size; ++i) to[i] = Combine<op, T>(to[i], from);
    } else {
      const T* const from = all + slice * size;
#pragma GCC ivdep
      for (int64_t i = 0; i < size; ++i) to[i] = Combine<op, T>(to[i], from[i]);
    }
  }
}

template <ScatterOp op, typename List>
ScatterKernel::Apply Find(List types, DType dtype) {
  ScatterKernel::Apply apply = nullptr;
  DispatchType(types, dtype, [&](auto tag) { apply = &ApplySlices<op, typename decltype(tag)::type>; });
  return apply;
}

}  // namespace

ScatterKernel::Apply FindScatterApply(ScatterOp op, DType dtype) {
  ScatterKernel::Apply apply = nullptr;
  switch (op) {
    case ScatterOp::kUpdate:
      DispatchMove(dtype, [&](auto tag) { apply = &ApplySlices<ScatterOp::kUpdate, typename decltype(tag)::type>; });
      return apply;
    case ScatterOp::kAdd:
      return Find<ScatterOp::kAdd>(PlainTypes{}, dtype);
    case ScatterOp::kSub:
      return Find<ScatterOp::kSub>(PlainTypes{}, dtype);
    case ScatterOp::kMul:
      return Find<ScatterOp::kMul>(NumberTypes{}, dtype);
    case ScatterOp::kDiv:
      return Find<ScatterOp::kDiv>(NumberTypes{}, dtype);
    case ScatterOp::kMin:
      return Find<ScatterOp::kMin>(RealTypes{}, dtype);
    case ScatterOp::kMax:
      return Find<ScatterOp::kMax>(RealTypes{}, dtype);
  }
  return nullptr;
}

}  // namespace millrace
