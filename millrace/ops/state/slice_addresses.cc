#include "millrace/ops/state/slice_addresses.h"

#include "absl/strings/str_join.h"

namespace millrace {
namespace {

int64_t IndexAt(const Tensor& indices, int64_t i) {
  return indices.dtype() == DType::kInt32 ? indices.data<int32_t>()[i] : indices.data<int64_t>()[i];
}

// The coordinates of element `i` of a tensor of shape `dims`, for messages.
std::string Position(absl::Span<const int64_t> dims, int64_t i) {
  Shape::Dims at(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    at[d] = i % dims[d];
    i /= dims[d];
  }
  return absl::StrCat("indices[", absl::StrJoin(at, ","), "]");
}

Status CheckIndexType(const Tensor& indices) {
  if (indices.dtype() == DType::kInt32 || indices.dtype() == DType::kInt64) return absl::OkStatus();
  return InvalidArgument("indices must be int32 or int64, not ", DTypeName(indices.dtype()));
}

StatusOr<Shape> JoinShapes(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  Shape::Dims dims(a.begin(), a.end());
  dims.insert(dims.end(), b.begin(), b.end());
  return Shape::Make(dims);
}

}  // namespace

StatusOr<BadIndices> ParseBadIndices(absl::string_view policy) {
  if (policy.empty() || policy == "DEFAULT" || policy == "ERROR") return BadIndices::kFail;
  if (policy == "IGNORE") return BadIndices::kSkip;
  return InvalidArgument("bad_indices_policy must be empty, DEFAULT, ERROR or IGNORE, not '", policy, "'");
}

StatusOr<SliceAddresses> RowAddresses(const Shape& params, const Tensor& indices, int64_t batch_dims) {
  MR_RETURN_IF_ERROR(CheckIndexType(indices));
  if (batch_dims < 0) batch_dims += indices.rank();
  if (batch_dims < 0 || batch_dims > indices.rank() || batch_dims >= params.rank()) {
    return InvalidArgument("params of shape ", params.ToString(), " and indices of shape ", indices.shape().ToString(),
                           " do not have ", batch_dims, " common leading dimensions and one more to choose from");
  }
  const int batch = static_cast<int>(batch_dims);
  for (int d = 0; d < batch; ++d) {
    if (params.dim(d) != indices.dim(d)) {
      return InvalidArgument("params and indices disagree in dimension ", d, ": ", params.ToString(), " and ",
                             indices.shape().ToString());
    }
  }
  SliceAddresses out;
  const int64_t rows = params.dim(batch);
  const int64_t n = indices.num_elements();
  const int64_t batches = params.Product(0, batch);
  const int64_t per_batch = batches == 0 ? 0 : n / batches;
  out.size = params.Product(batch + 1, params.rank());
  MR_ASSIGN_OR_RETURN(out.shape, JoinShapes(indices.shape().dims(), params.dims().subspan(batch + 1)));
  out.offsets.resize(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = IndexAt(indices, i);
    if (row < 0 || row >= rows) {
      return InvalidArgument(Position(indices.shape().dims(), i), " = ", row, " is not in [0, ", rows, ")");
    }
    const int64_t first_row = batch == 0 ? 0 : i / per_batch * rows;
    out.offsets[i] = (first_row + row) * out.size;
  }
  return out;
}

StatusOr<SliceAddresses> NdAddresses(const Shape& params, const Tensor& indices, BadIndices bad) {
  MR_RETURN_IF_ERROR(CheckIndexType(indices));
  if (indices.rank() < 1) return InvalidArgument("indices must be at least a vector");
  const absl::Span<const int64_t> outer = indices.shape().dims().subspan(0, indices.rank() - 1);
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > params.rank()) {
    return InvalidArgument("the last dimension of indices is ", depth,
                           ", more than the rank of the shape they point into, ", params.ToString());
  }
  SliceAddresses out;
  const int coordinates = static_cast<int>(depth);
  out.size = params.Product(coordinates, params.rank());
  MR_ASSIGN_OR_RETURN(out.shape, JoinShapes(outer, params.dims().subspan(coordinates)));
  const int64_t n = indices.shape().Product(0, indices.rank() - 1);
  out.offsets.resize(n);
  for (int64_t i = 0; i < n; ++i) {
    int64_t slice = 0;
    for (int d = 0; d < coordinates; ++d) {
      const int64_t at = IndexAt(indices, i * coordinates + d);
      if (at < 0 || at >= params.dim(d)) {
        slice = SliceAddresses::kSkip;
        break;
      }
      slice = slice * params.dim(d) + at;
    }
    if (slice == SliceAddresses::kSkip && bad == BadIndices::kFail) {
      std::string wanted;
      for (int d = 0; d < coordinates; ++d) {
        absl::StrAppend(&wanted, d > 0 ? ", " : "", IndexAt(indices, i * coordinates + d));
      }
      return InvalidArgument(Position(outer, i), " = [", wanted, "] does not index into shape ", params.ToString());
    }
    out.offsets[i] = slice == SliceAddresses::kSkip ? slice : slice * out.size;
  }
  return out;
}

}  // namespace millrace
