// Inputs of string kernels.
#pragma once

#include <string>

#include "millrace/runtime/kernel.h"

namespace millrace {

// Input `i` as a string. INVALID_ARGUMENT, naming it, if it is not a scalar.
inline StatusOr<const std::string*> ScalarString(const KernelContext& ctx, int i, const char* name) {
  const Tensor& t = ctx.input(i);
  if (t.rank() != 0) return InvalidArgument(name, " must be a scalar, but has shape ", t.shape().ToString());
  return t.data<std::string>();
}

// The number of strings that is worth a thread; typical strings have a few dozen bytes.
inline constexpr int64_t kStringGrain = 512;

// Sets each string of output 0 to fn(string of input 0), in parallel. `fn` must not have side effects.
template <typename Fn>
Status MapStrings(KernelContext& ctx, Fn&& fn) {
  const Tensor& input = ctx.input(0);
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
  const std::string* from = input.data<std::string>();
  std::string* to = out->data<std::string>();
  ctx.ParallelFor(input.num_elements(), kStringGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = fn(from[i]);
  });
  return absl::OkStatus();
}

}  // namespace millrace
