// Outputs and tags of summary ops.
#pragma once

#include <string>

#include "millrace/proto/summary.pb.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// Sets output 0 to the serialized summary, a scalar.
inline Status SetSummary(KernelContext& ctx, const pb::Summary& summary) {
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
  if (summary.ByteSizeLong() > INT32_MAX || !summary.SerializeToString(&out->scalar<std::string>())) {
    return InvalidArgument("the summary is too large");
  }
  return absl::OkStatus();
}

// Input `i` as the tag of a summary.
inline StatusOr<const std::string*> TagInput(const KernelContext& ctx, int i) {
  const Tensor& tag = ctx.input(i);
  if (tag.rank() != 0) return InvalidArgument("tag must be scalar, but has shape ", tag.shape().ToString());
  return tag.data<std::string>();
}

}  // namespace millrace
