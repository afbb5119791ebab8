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

StatusOr<SliceForm> RowSlices(const Shape& params, const Tensor& indices, int64_t batch_dims) {
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
  SliceForm form;
  form.batches = params.Product(0, batch);
  form.rows = params.dim(batch);
  form.count = indices.num_elements();
  form.size = params.Product(batch + 1, params.rank());
  MR_ASSIGN_OR_RETURN(form.shape, JoinShapes(indices.shape().dims(), params.dims().subspan(batch + 1)));
  form.coordinates = {form.rows};
  return form;
}

StatusOr<SliceForm> NdSlices(const Shape& params, const Tensor& indices) {
  MR_RETURN_IF_ERROR(CheckIndexType(indices));
  if (indices.rank() < 1) return InvalidArgument("indices must be at least a vector");
  const absl::Span<const int64_t> outer = indices.shape().dims().subspan(0, indices.rank() - 1);
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > params.rank()) {
    return InvalidArgument("the last dimension of indices is ", depth,
                           ", more than the rank of the shape they point into, ", params.ToString());
  }
  SliceForm form;
  const int coordinates = static_cast<int>(depth);
  form.rows = params.Product(0, coordinates);
  form.count = indices.shape().Product(0, indices.rank() - 1);
  form.size = params.Product(coordinates, params.rank());
  MR_ASSIGN_OR_RETURN(form.shape, JoinShapes(outer, params.dims().subspan(coordinates)));
  form.coordinates.assign(params.dims().begin(), params.dims().begin() + coordinates);
  return form;
}

StatusOr<SliceAddresses> RowAddresses(const Shape& params, const Tensor& indices, int64_t batch_dims) {
  MR_ASSIGN_OR_RETURN(SliceForm form, RowSlices(params, indices, batch_dims));
  const int64_t per_batch = form.batches == 0 ? 0 : form.count / form.batches;
  SliceAddresses out;
  out.size = form.size;
  out.shape = std::move(form.shape);
  out.offsets.resize(form.count);
  for (int64_t i = 0; i < form.count; ++i) {
    const int64_t row = IndexAt(indices, i);
    if (row < 0 || row >= form.rows) {
      return InvalidArgument(Position(indices.shape().dims(), i), " = ", row, " is not in [0, ", form.rows, ")");
    }
    const int64_t first_row = form.batches == 1 ? 0 : i / per_batch * form.rows;
    out.offsets[i] = (first_row + row) * out.size;
  }
  return out;
}

StatusOr<SliceAddresses> NdAddresses(const Shape& params, const Tensor& indices, BadIndices bad) {
  MR_ASSIGN_OR_RETURN(SliceForm form, NdSlices(params, indices));
  const int coordinates = static_cast<int>(form.coordinates.size());
  SliceAddresses out;
  out.size = form.size;
  out.shape = std::move(form.shape);
  out.offsets.resize(form.count);
  for (int64_t i = 0; i < form.count; ++i) {
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
      return InvalidArgument(Position(indices.shape().dims().subspan(0, indices.rank() - 1), i), " = [", wanted,
                             "] does not index into shape ", params.ToString());
    }
    out.offsets[i] = slice == SliceAddresses::kSkip ? slice : slice * out.size;
  }
  return out;
}

}  // namespace millrace
