#include "millrace/collective/reduction.h"

#include <complex>
#include <cstring>
#include <type_traits>

namespace millrace::collective {
namespace {

template <typename T>
constexpr bool kIsComplex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
template <typename T>
constexpr bool kIsNarrow = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

// The type in which two elements are combined: unsigned integers wrap where signed ones must not overflow.
template <typename T>
auto Widen(T value) {
  if constexpr (kIsNarrow<T>) {
    return static_cast<float>(value);
  } else if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(uint32_t)) {
    return static_cast<uint32_t>(value);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(value);
  } else {
    return value;
  }
}

struct Add {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(Widen(a) + Widen(b));
  }
};
struct Multiply {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(Widen(a) * Widen(b));
  }
};
struct Least {
  template <typename T>
  static T Of(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
struct Greatest {
  template <typename T>
  static T Of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

template <typename Op, typename T>
void Loop(const void* left, const void* right, void* out, int64_t count) {
  const T* const a = static_cast<const T*>(left);
  const T* const b = static_cast<const T*>(right);
  T* const c = static_cast<T*>(out);
  // `out` is one of the inputs or apart from both, so no iteration reads what another writes.
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) c[i] = Op::Of(a[i], b[i]);
}

template <typename T>
void ReduceAs(Reduction reduction, const void* left, const void* right, void* out, int64_t count) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMean:
      return Loop<Add, T>(left, right, out, count);
    case Reduction::kProduct:
      return Loop<Multiply, T>(left, right, out, count);
    case Reduction::kMin:
      if constexpr (!kIsComplex<T>) Loop<Least, T>(left, right, out, count);
      return;
    case Reduction::kMax:
      if constexpr (!kIsComplex<T>) Loop<Greatest, T>(left, right, out, count);
      return;
  }
}

template <typename T>
void DivideAs(void* values, int64_t count, int64_t by) {
  T* const v = static_cast<T*>(values);
  if constexpr (kIsNarrow<T>) {
    const float divisor = static_cast<float>(by);
    for (int64_t i = 0; i < count; ++i) v[i] = static_cast<T>(static_cast<float>(v[i]) / divisor);
  } else if constexpr (kIsComplex<T>) {
    const auto divisor = static_cast<typename T::value_type>(by);
    for (int64_t i = 0; i < count; ++i) v[i] /= divisor;
  } else if constexpr (std::is_integral_v<T>) {
    // Wider than T, so that a number of ranks that T cannot hold divides as well.
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    for (int64_t i = 0; i < count; ++i) v[i] = static_cast<T>(static_cast<Wide>(v[i]) / static_cast<Wide>(by));
  } else {
    const T divisor = static_cast<T>(by);
    for (int64_t i = 0; i < count; ++i) v[i] /= divisor;
  }
}

// Calls `use` with a value of the C++ type; does nothing for types that cannot be reduced.
template <typename Use>
bool WithReducible(DType dtype, Use use) {
  switch (dtype) {
    case DType::kFloat:
      return use(float{}), true;
    case DType::kDouble:
      return use(double{}), true;
    case DType::kHalf:
      return use(half{}), true;
    case DType::kBFloat16:
      return use(bfloat16{}), true;
    case DType::kInt8:
      return use(int8_t{}), true;
    case DType::kInt16:
      return use(int16_t{}), true;
    case DType::kInt32:
      return use(int32_t{}), true;
    case DType::kInt64:
      return use(int64_t{}), true;
    case DType::kUInt8:
      return use(uint8_t{}), true;
    case DType::kUInt16:
      return use(uint16_t{}), true;
    case DType::kUInt32:
      return use(uint32_t{}), true;
    case DType::kUInt64:
      return use(uint64_t{}), true;
    case DType::kComplex64:
      return use(std::complex<float>{}), true;
    case DType::kComplex128:
      return use(std::complex<double>{}), true;
    default:
      return false;
  }
}

}  // namespace

absl::string_view ReductionName(Reduction reduction) {
  constexpr absl::string_view kNames[kReductions] = {"sum", "mean", "min", "max", "product"};
  const auto number = static_cast<size_t>(reduction);
  return number < kReductions ? kNames[number] : "unknown";
}

Status CheckReducible(DType dtype, Reduction reduction) {
  if (static_cast<size_t>(reduction) >= kReductions)
    return InvalidArgument("there is no reduction number ", static_cast<int>(reduction));
  const bool known = WithReducible(dtype, [](auto) {});
  const bool ordered = reduction == Reduction::kMin || reduction == Reduction::kMax;
  if (known && !(ordered && IsComplex(dtype))) return absl::OkStatus();
  return InvalidArgument("elements of type ", dtype, " cannot be reduced by ", ReductionName(reduction));
}

void Reduce(DType dtype, Reduction reduction, const void* left, const void* right, void* out, int64_t count) {
  WithReducible(dtype, [&](auto type) { ReduceAs<decltype(type)>(reduction, left, right, out, count); });
}

void FinishReduction(DType dtype, Reduction reduction, void* values, int64_t count, int64_t added) {
  if (reduction != Reduction::kMean || added == 1) return;
  WithReducible(dtype, [&](auto type) { DivideAs<decltype(type)>(values, count, added); });
}

AlignedMessage::AlignedMessage(const net::Bytes& message) {
  constexpr uintptr_t kAlignment = 16;
  const auto pieces = message.pieces();
  if (pieces.empty()) return;
  data_ = pieces[0].data.data();
  if (pieces.size() == 1 && reinterpret_cast<uintptr_t>(data_) % kAlignment == 0) return;
  copy_.resize(message.size() + kAlignment);
  const uintptr_t start = reinterpret_cast<uintptr_t>(copy_.data());
  char* const to = copy_.data() + (kAlignment - start % kAlignment) % kAlignment;
  const bool whole = net::BytesReader(message).Read(to, message.size());
  MR_CHECK(whole);
  data_ = to;
}

}  // namespace millrace::collective
