// File names and lists of strings as kernel inputs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// The file system of the step; all file access of kernels goes through it, so that a session can be confined. INTERNAL
// if the step has none.
StatusOr<FileSystem*> Files(const KernelContext& ctx);

// The path of a name that may begin with "file://". UNIMPLEMENTED for other schemes.
StatusOr<std::string> LocalPath(absl::string_view name);

// The path in input i, a scalar; errors refer to it as `what`.
StatusOr<std::string> PathInput(const KernelContext& ctx, int i, absl::string_view what);

// The names and slices of a checkpoint op, as vectors of the same length `count`.
struct NamedSlices {
  absl::Span<const std::string> names;
  absl::Span<const std::string> slices;
};
// Inputs 0 to 2 of SaveV2 and RestoreV2: a prefix, names and slices. INVALID_ARGUMENT as TensorFlow gives it.
StatusOr<std::string> PrefixInput(const KernelContext& ctx);
StatusOr<NamedSlices> NamedSlicesInput(const KernelContext& ctx);

// Checks that inputs have these ranks; there are no outputs.
Status CheckRanks(ShapeContext& c, std::initializer_list<int> ranks);

}  // namespace millrace
