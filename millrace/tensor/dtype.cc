#include "millrace/tensor/dtype.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "millrace/tensor/narrow_types.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

// Indexed by the type's number. Unsupported types have names too, because schemas and messages mention them.
constexpr absl::string_view kNames[] = {"invalid",
                                        "float",
                                        "double",
                                        "int32",
                                        "uint8",
                                        "int16",
                                        "int8",
                                        "string",
                                        "complex64",
                                        "int64",
                                        "bool",
                                        "qint8",
                                        "quint8",
                                        "qint32",
                                        "bfloat16",
                                        "qint16",
                                        "quint16",
                                        "uint16",
                                        "complex128",
                                        "half",
                                        "resource",
                                        "variant",
                                        "uint32",
                                        "uint64",
                                        "float8_e5m2",
                                        "float8_e4m3fn",
                                        "float8_e4m3fnuz",
                                        "float8_e4m3b11fnuz",
                                        "float8_e5m2fnuz",
                                        "int4",
                                        "uint4",
                                        "int2",
                                        "uint2",
                                        "float4_e2m1fn"};
constexpr int kNumNames = static_cast<int>(sizeof(kNames) / sizeof(kNames[0]));

constexpr absl::string_view kRefSuffix = "_ref";

}  // namespace

bool IsKnown(DType t) {
  const DType base = BaseType(t);
  return !IsRef(base) && SizeOf(base) != 0;
}

size_t dtype_internal::SizeOfObject(DType t) {
  if (IsNarrow(t)) return 1;
  if (t == DType::kString) return sizeof(std::string);
  if (t == DType::kResource) return sizeof(ResourceHandle);
  if (t == DType::kVariant) return sizeof(Variant);
  // A reference is stored as a handle to its variable, whatever the variable's type.
  return IsRef(t) && IsKnown(t) ? sizeof(ResourceHandle) : 0;
}

DType UnquantizedType(DType t) {
  switch (t) {
    case DType::kQInt8:
      return DType::kInt8;
    case DType::kQUInt8:
      return DType::kUInt8;
    case DType::kQInt16:
      return DType::kInt16;
    case DType::kQUInt16:
      return DType::kUInt16;
    case DType::kQInt32:
      return DType::kInt32;
    default:
      return IsFloat8(t) ? t : WideType(t);
  }
}

bool IsPlain(DType t) { return t != DType::kString && t != DType::kResource && t != DType::kVariant && !IsRef(t); }

bool IsFloating(DType t) {
  return t == DType::kFloat || t == DType::kDouble || t == DType::kHalf || t == DType::kBFloat16;
}

bool IsComplex(DType t) { return t == DType::kComplex64 || t == DType::kComplex128; }

bool IsInteger(DType t) {
  switch (t) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return true;
    default:
      return false;
  }
}

std::string DTypeName(DType t) {
  const int number = static_cast<int>(BaseType(t));
  if (number < 0 || number >= kNumNames) return absl::StrCat("dtype(", static_cast<int>(t), ")");
  return absl::StrCat(kNames[number], IsRef(t) ? kRefSuffix : "");
}

StatusOr<DType> ParseDType(absl::string_view name) {
  std::string lower = absl::AsciiStrToLower(name);
  absl::string_view rest = lower;
  absl::ConsumePrefix(&rest, "dt_");
  const bool is_ref = absl::ConsumeSuffix(&rest, kRefSuffix);
  if (rest == "float32") rest = "float";
  if (rest == "float64") rest = "double";
  if (rest == "float16") rest = "half";
  for (int i = 1; i < kNumNames; ++i) {
    if (kNames[i] == rest) return is_ref ? RefType(static_cast<DType>(i)) : static_cast<DType>(i);
  }
  return InvalidArgument("'", name, "' is not a data type");
}

std::ostream& operator<<(std::ostream& out, DType t) { return out << DTypeName(t); }

}  // namespace millrace
