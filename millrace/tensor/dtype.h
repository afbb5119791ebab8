// Element types, numbered as TensorFlow numbers them.
#pragma once

#include <complex>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/tensor/half.h"

namespace millrace {

enum class DType : int32_t {
  kInvalid = 0,
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUInt8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kQInt8 = 11,
  kQUInt8 = 12,
  kQInt32 = 13,
  kBFloat16 = 14,
  kQInt16 = 15,
  kQUInt16 = 16,
  kUInt16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kResource = 20,
  kVariant = 21,
  kUInt32 = 22,
  kUInt64 = 23,
};

// A reference to a TF1 variable of type T has T's number plus this.
inline constexpr int kRefOffset = 100;

inline bool IsRef(DType t) { return static_cast<int>(t) > kRefOffset; }
inline DType BaseType(DType t) { return IsRef(t) ? static_cast<DType>(static_cast<int>(t) - kRefOffset) : t; }
inline DType RefType(DType t) { return IsRef(t) ? t : static_cast<DType>(static_cast<int>(t) + kRefOffset); }

// True for the types that this runtime supports, and for references to them.
bool IsKnown(DType t);
namespace dtype_internal {
// Indexed by the type's number; 0 for non-plain and unknown types. Quantized types are only copied, never computed
// with.
inline constexpr uint8_t kPlainSizes[] = {0, 4, 8, 4, 1, 2, 1, 0, 8, 8, 1, 1, 1, 4, 2, 2, 2, 2, 16, 2, 0, 0, 4, 8};
size_t SizeOfObject(DType t);
}  // namespace dtype_internal
// The size of one element in bytes: sizeof the C++ type for strings, resources and variants; 0 for unknown types.
inline size_t SizeOf(DType t) {
  const auto number = static_cast<uint32_t>(t);
  const size_t size = number < sizeof(dtype_internal::kPlainSizes) ? dtype_internal::kPlainSizes[number] : 0;
  return size != 0 ? size : dtype_internal::SizeOfObject(t);
}
// The integer type that a quantized type is stored as; other types are returned unchanged.
DType UnquantizedType(DType t);
// False for elements with constructors (string, resource, variant).
bool IsPlain(DType t);
bool IsFloating(DType t);
bool IsComplex(DType t);
bool IsInteger(DType t);

// TensorFlow's name in op schemas and messages: "float", "int32", "float_ref".
std::string DTypeName(DType t);
// The inverse of DTypeName; also accepts "DT_FLOAT" forms.
StatusOr<DType> ParseDType(absl::string_view name);
std::ostream& operator<<(std::ostream& out, DType t);

// For InvalidArgument(...) and the other error makers. Plain absl::StrCat needs DTypeName.
inline std::string MessageText(DType t) { return DTypeName(t); }

class ResourceHandle;
class Variant;

// DTypeOf<float>() == DType::kFloat, and CppType<DType::kFloat> is float.
template <typename T>
struct DTypeTraits;
#define MR_DTYPE(cpp, dtype)                      \
  template <>                                     \
  struct DTypeTraits<cpp> {                       \
    static constexpr DType kDType = DType::dtype; \
  }
MR_DTYPE(float, kFloat);
MR_DTYPE(double, kDouble);
MR_DTYPE(int32_t, kInt32);
MR_DTYPE(uint8_t, kUInt8);
MR_DTYPE(int16_t, kInt16);
MR_DTYPE(int8_t, kInt8);
MR_DTYPE(std::string, kString);
MR_DTYPE(std::complex<float>, kComplex64);
MR_DTYPE(int64_t, kInt64);
MR_DTYPE(bool, kBool);
MR_DTYPE(bfloat16, kBFloat16);
MR_DTYPE(uint16_t, kUInt16);
MR_DTYPE(std::complex<double>, kComplex128);
MR_DTYPE(half, kHalf);
MR_DTYPE(ResourceHandle, kResource);
MR_DTYPE(Variant, kVariant);
MR_DTYPE(uint32_t, kUInt32);
MR_DTYPE(uint64_t, kUInt64);
#undef MR_DTYPE

template <typename T>
constexpr DType DTypeOf() {
  return DTypeTraits<T>::kDType;
}

}  // namespace millrace
