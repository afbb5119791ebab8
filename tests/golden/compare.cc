#include "tests/golden/compare.h"

#include <cmath>
#include <complex>
#include <cstring>

#include "millrace/tensor/dispatch.h"

namespace millrace::golden {
namespace {

struct Tolerance {
  double rtol;
  double atol;
  bool exact() const { return rtol == 0 && atol == 0; }
};

bool CloseReal(double want, double got, Tolerance t) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return want == got;
  return std::abs(got - want) <= t.atol + t.rtol * std::abs(want);
}

template <typename T>
bool Close(const T& want, const T& got, Tolerance t) {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    if (t.exact()) return Close(want.real(), got.real(), t) && Close(want.imag(), got.imag(), t);
    const std::complex<double> w(want), g(got);
    if (!std::isfinite(std::abs(w)) || !std::isfinite(std::abs(g))) {
      return CloseReal(w.real(), g.real(), t) && CloseReal(w.imag(), g.imag(), t);
    }
    return std::abs(g - w) <= t.atol + t.rtol * std::abs(w);
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, half> ||
                       std::is_same_v<T, bfloat16>) {
    if (t.exact() && !std::isnan(static_cast<double>(want))) return std::memcmp(&want, &got, sizeof(T)) == 0;
    return CloseReal(static_cast<double>(want), static_cast<double>(got), t);
  } else {
    return want == got;
  }
}

template <typename T>
Status CompareElements(const Tensor& want, const Tensor& got, Tolerance t) {
  const T* w = want.raw<T>();  // a quantized number is compared as the integer it is
  const T* g = got.raw<T>();
  const int64_t n = want.num_elements();
  int64_t wrong = 0;
  int64_t first = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (Close(w[i], g[i], t)) continue;
    if (first < 0) first = i;
    ++wrong;
  }
  if (wrong == 0) return absl::OkStatus();
  const auto one = [](const T& value) { return Tensor::Scalar<T>(value).DebugString(); };
  return DataLoss(wrong, " of ", n, " elements differ, first at ", first, ": got ", one(g[first]), ", want ",
                  one(w[first]), " (rtol ", t.rtol, ", atol ", t.atol, ")");
}

}  // namespace

Status Compare(const Tensor& want, const Tensor& got, double rtol, double atol) {
  if (want.dtype() != got.dtype()) {
    return DataLoss("got dtype ", DTypeName(got.dtype()), ", want ", DTypeName(want.dtype()));
  }
  if (want.shape() != got.shape()) {
    return DataLoss("got shape ", got.shape().ToString(), ", want ", want.shape().ToString());
  }
  Status result;
  using Comparable = JoinTypes<PlainTypes, Types<std::string>>::type;
  const bool known = DispatchType(Comparable{}, UnquantizedType(want.dtype()), [&](auto tag) {
    result = CompareElements<typename decltype(tag)::type>(want, got, Tolerance{rtol, atol});
  });
  if (!known) return Unimplemented("cannot compare tensors of type ", DTypeName(want.dtype()));
  return result;
}

double ElementAsDouble(const Tensor& tensor, int64_t i) {
  double value = 0;
  const bool floating = DispatchType(FloatTypes{}, tensor.dtype(), [&](auto tag) {
    value = static_cast<double>(tensor.data<typename decltype(tag)::type>()[i]);
  });
  MR_CHECK(floating);
  return value;
}

}  // namespace millrace::golden
