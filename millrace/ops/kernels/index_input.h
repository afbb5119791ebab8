// Integer inputs of kernels (indices, axes, sizes) of any width.
#pragma once

#include <cstdint>

#include "millrace/runtime/kernel.h"

namespace millrace {

// Element i of a tensor of int16, int32 or int64.
inline int64_t IntAt(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kInt16:
      return t.data<int16_t>()[i];
    case DType::kInt32:
      return t.data<int32_t>()[i];
    default:
      return t.data<int64_t>()[i];
  }
}

// Input `i` as an integer. INVALID_ARGUMENT, naming it, if it is not a scalar.
inline StatusOr<int64_t> ScalarInput(const KernelContext& ctx, int i, const char* name) {
  const Tensor& t = ctx.input(i);
  if (t.num_elements() != 1) {
    return InvalidArgument(name, " must be a scalar, but has shape ", t.shape().ToString());
  }
  return IntAt(t, 0);
}

// The elements as int64; shares memory with `t` if it is int64.
inline StatusOr<Tensor> AsInt64(KernelContext& ctx, const Tensor& t) {
  if (t.dtype() == DType::kInt64) return t;
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(DType::kInt64, t.shape()));
  int64_t* out = wide.data<int64_t>();
  for (int64_t i = 0, n = t.num_elements(); i < n; ++i) out[i] = IntAt(t, i);
  return wide;
}

// A string input with one element.
inline StatusOr<const std::string*> TextInput(const KernelContext& ctx, int i, const char* name) {
  if (ctx.input(i).num_elements() == 1) return ctx.input(i).data<std::string>();
  return InvalidArgument(name, " must be a scalar, but has shape ", ctx.input(i).shape().ToString());
}

}  // namespace millrace
