// Floats of 8 bits and integers of 4 and 2 bits. Every element takes one byte. Kernels that move elements take them as
// any other type; nothing is computed with them: Cast converts them through a wider type.
#pragma once

#include <cstdint>

#include "millrace/tensor/dtype.h"

namespace millrace {

// E: bits of the exponent; M: bits of the mantissa; FN: no infinity; UZ: no negative zero; B11: another bias.
inline constexpr DType kFloat8E5M2 = static_cast<DType>(24);
inline constexpr DType kFloat8E4M3FN = static_cast<DType>(25);
inline constexpr DType kFloat8E4M3FNUZ = static_cast<DType>(26);
inline constexpr DType kFloat8E4M3B11FNUZ = static_cast<DType>(27);
inline constexpr DType kFloat8E5M2FNUZ = static_cast<DType>(28);
inline constexpr DType kInt4 = static_cast<DType>(29);
inline constexpr DType kUInt4 = static_cast<DType>(30);
inline constexpr DType kInt2 = static_cast<DType>(31);
inline constexpr DType kUInt2 = static_cast<DType>(32);

inline bool IsFloat8(DType t) { return t >= kFloat8E5M2 && t <= kFloat8E5M2FNUZ; }
inline bool IsNarrow(DType t) { return t >= kFloat8E5M2 && t <= kUInt2; }

// The type that a narrow type is converted through, which has all its values: float, int8 or uint8. Other types are
// returned unchanged.
DType WideType(DType t);

// Converts n elements of the narrow type `t` to WideType(t).
void WidenElements(DType t, const uint8_t* from, void* to, int64_t n);
// The inverse: floats are rounded to nearest even, and what is too large becomes infinity, or NaN where there is none;
// of integers the low bits remain.
void NarrowElements(DType t, const void* from, uint8_t* to, int64_t n);

}  // namespace millrace
