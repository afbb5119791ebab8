#include "millrace/strategy/horovod/compression.h"

#include <algorithm>
#include <utility>

namespace millrace::hvd {
namespace {

template <typename From, typename To>
Tensor Converted(const Tensor& from) {
  Tensor to(DTypeOf<To>(), from.shape());
  std::transform(from.flat<From>().begin(), from.flat<From>().end(), to.flat<To>().begin(),
                 [](From value) { return static_cast<To>(value); });
  return to;
}

}  // namespace

Tensor Compressed(const Tensor& tensor) {
  if (tensor.dtype() == DType::kFloat) return Converted<float, half>(tensor);
  if (tensor.dtype() == DType::kDouble) return Converted<double, half>(tensor);
  return tensor;
}

Tensor Decompressed(Tensor tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  if (dtype == DType::kFloat) return Converted<half, float>(tensor);
  return Converted<half, double>(tensor);
}

}  // namespace millrace::hvd
