// Dispatch from a run-time dtype to a compile-time type.
#pragma once

#include <type_traits>
#include <utility>

#include "millrace/tensor/dtype.h"

namespace millrace {

template <typename... Ts>
struct Types {};

template <typename T>
struct TypeTag {
  using type = T;
};

template <typename A, typename B>
struct JoinTypes;
template <typename... A, typename... B>
struct JoinTypes<Types<A...>, Types<B...>> {
  using type = Types<A..., B...>;
};

using FloatTypes = Types<float, double, half, bfloat16>;
using ComplexTypes = Types<std::complex<float>, std::complex<double>>;
using SignedIntTypes = Types<int8_t, int16_t, int32_t, int64_t>;
using UnsignedIntTypes = Types<uint8_t, uint16_t, uint32_t, uint64_t>;
using IntTypes = JoinTypes<SignedIntTypes, UnsignedIntTypes>::type;
using RealTypes = JoinTypes<FloatTypes, IntTypes>::type;
using NumberTypes = JoinTypes<RealTypes, ComplexTypes>::type;
using PlainTypes = JoinTypes<NumberTypes, Types<bool>>::type;
using IndexTypes = Types<int32_t, int64_t>;

// Calls fn(TypeTag<T>) for the T in the list whose dtype is `dtype` and returns true; returns false if the list has no
// such T.
template <typename... Ts, typename Fn>
bool DispatchType(Types<Ts...>, DType dtype, Fn&& fn) {
  return ((DTypeOf<Ts>() == dtype ? (fn(TypeTag<Ts>{}), true) : false) || ...);
}

// For code that only moves elements: calls fn(TypeTag<uintN_t>) by element size (1, 2, 4, 8 bytes), or with
// std::complex<double> for 16, or std::string / ResourceHandle / Variant for those types. This needs fewer
// instantiations than one per type.
template <typename Fn>
bool DispatchMove(DType dtype, Fn&& fn) {
  if (!IsPlain(dtype)) {
    if (dtype == DType::kString) return fn(TypeTag<std::string>{}), true;
    if (dtype == DType::kResource) return fn(TypeTag<ResourceHandle>{}), true;
    if (dtype == DType::kVariant) return fn(TypeTag<Variant>{}), true;
    return false;
  }
  switch (SizeOf(dtype)) {
    case 1:
      return fn(TypeTag<uint8_t>{}), true;
    case 2:
      return fn(TypeTag<uint16_t>{}), true;
    case 4:
      return fn(TypeTag<uint32_t>{}), true;
    case 8:
      return fn(TypeTag<uint64_t>{}), true;
    case 16:
      return fn(TypeTag<std::complex<double>>{}), true;
    default:
      return false;
  }
}

}  // namespace millrace
