#include "millrace/ops/io/file_inputs.h"

#include "absl/strings/match.h"

namespace millrace {

StatusOr<FileSystem*> Files(const KernelContext& ctx) {
  if (ctx.step().files == nullptr) return Internal("the step has no files");
  return ctx.step().files;
}

StatusOr<std::string> LocalPath(absl::string_view name) {
  const size_t scheme = name.find("://");
  if (scheme == absl::string_view::npos || scheme == 0 ||
      name.substr(0, scheme).find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.") != absl::string_view::npos) {
    return std::string(name);
  }
  if (!absl::StartsWith(name, "file://")) {
    return Unimplemented("File system scheme '", name.substr(0, scheme), "' not implemented (file: '", name, "')");
  }
  // The host part before the path must be empty.
  const absl::string_view rest = name.substr(scheme + 3);
  const size_t slash = rest.find('/');
  return std::string(slash == absl::string_view::npos ? rest : rest.substr(slash));
}

StatusOr<std::string> PathInput(const KernelContext& ctx, int i, absl::string_view what) {
  const Tensor& input = ctx.input(i);
  if (input.rank() != 0) {
    return InvalidArgument("Input ", what, " tensor must be scalar, but had shape: ", input.shape().ToString());
  }
  return LocalPath(input.scalar<std::string>());
}

StatusOr<std::string> PrefixInput(const KernelContext& ctx) {
  if (ctx.input(0).num_elements() != 1) {
    return InvalidArgument("Input prefix should have a single element, got ", ctx.input(0).num_elements(), " instead.");
  }
  return LocalPath(ctx.input(0).scalar<std::string>());
}

StatusOr<NamedSlices> NamedSlicesInput(const KernelContext& ctx) {
  const Tensor& names = ctx.input(1);
  const Tensor& slices = ctx.input(2);
  if (names.rank() != 1 || slices.rank() != 1) {
    return InvalidArgument("Input tensor_names and shape_and_slices should be an 1-D tensors, got ",
                           names.shape().ToString(), " and ", slices.shape().ToString(), " instead.");
  }
  if (names.dim(0) != slices.dim(0)) {
    return InvalidArgument("tensor_names and shape_and_slices have different number of elements: ", names.dim(0),
                           " vs. ", slices.dim(0));
  }
  return NamedSlices{names.flat<std::string>(), slices.flat<std::string>()};
}

Status CheckRanks(ShapeContext& c, std::initializer_list<int> ranks) {
  int i = 0;
  for (const int rank : ranks) MR_RETURN_IF_ERROR(c.WithRank(i++, rank).status());
  return absl::OkStatus();
}

}  // namespace millrace
