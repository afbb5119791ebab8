#include "millrace/ops/parsing/sparse_parts.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/tensor/copy_elements.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

// A shape may claim any number of rows, each of which takes about a hundred bytes.
constexpr int64_t kMostRows = int64_t{1} << 22;

std::string RowText(const int64_t* row, int64_t n) { return absl::StrCat("[", absl::StrJoin(row, row + n, ","), "]"); }

void CopyValues(const Tensor& from, int64_t begin, int64_t n, Tensor* to) {
  if (from.dtype() == DType::kVariant) {
    std::copy_n(from.data<Variant>() + begin, n, to->data<Variant>());
  } else {
    CopyElements(from.dtype(), from.raw_data(), begin, to->raw_data(), 0, n);
  }
}

// In bounds, in order and none twice.
Status CheckRows(const Tensor& indices, const int64_t* dims) {
  const int64_t n = indices.dim(0), rank = indices.dim(1);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t* row = indices.data<int64_t>() + i * rank;
    for (int64_t d = 0; d < rank; ++d) {
      if (row[d] < 0 || row[d] >= dims[d]) {
        return InvalidArgument("indices[", i, "] = ", RowText(row, rank), " is out of bounds: need 0 <= index < ",
                               RowText(dims, rank));
      }
    }
    if (i == 0) continue;
    const int64_t* before = row - rank;
    if (std::equal(row, row + rank, before)) {
      return InvalidArgument("indices[", i, "] = ", RowText(row, rank), " is repeated");
    }
    if (std::lexicographical_compare(row, row + rank, before, before + rank)) {
      return InvalidArgument("indices[", i, "] = ", RowText(row, rank),
                             " is out of order. Many sparse ops require sorted indices.");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckSparseInputs(const Tensor& indices, const Tensor& values, const Tensor& shape) {
  if (indices.rank() != 2) {
    return InvalidArgument("Input indices should be a matrix but received shape ", indices.shape().ToString());
  }
  if (values.rank() != 1) {
    return InvalidArgument("Input values should be a vector but received shape ", values.shape().ToString());
  }
  if (shape.rank() != 1) {
    return InvalidArgument("Input shape should be a vector but received shape ", shape.shape().ToString());
  }
  return absl::OkStatus();
}

StatusOr<std::vector<SparsePart>> SplitSparseRows(const Tensor& indices, const Tensor& values, const Tensor& shape) {
  MR_RETURN_IF_ERROR(CheckSparseInputs(indices, values, shape));
  const int64_t rank = shape.dim(0), n = indices.dim(0);
  const int64_t* dims = shape.data<int64_t>();
  if (rank < 2) return InvalidArgument("Rank of input SparseTensor should be > 1, but saw rank: ", rank);
  if (indices.dim(1) != rank) {
    return InvalidArgument("indices must have ", rank, " columns, as many as the shape has dimensions, not ",
                           indices.dim(1));
  }
  if (values.dim(0) != n) {
    return InvalidArgument("indices and values rows (indexing dimension) must match. (indices = ", n,
                           ", values = ", values.dim(0), ")");
  }
  for (int64_t d = 0; d < rank; ++d) {
    if (dims[d] < 0) return InvalidArgument("Dimension ", d, " of the shape must not be negative, but is ", dims[d]);
  }
  MR_RETURN_IF_ERROR(CheckRows(indices, dims));
  // Empty rows take memory too.
  MR_RETURN_IF_ERROR(Shape::Make({dims[0], 3}).status());
  if (dims[0] > kMostRows) return ResourceExhausted("a sparse tensor of ", dims[0], " rows is too large to be split");
  std::vector<SparsePart> parts;
  const Tensor row_shape =
      Tensor::FromSpan<int64_t>(absl::MakeConstSpan(dims + 1, static_cast<size_t>(rank - 1)), Shape({rank - 1}));
  const int64_t* index = indices.data<int64_t>();
  int64_t begin = 0;
  for (int64_t row = 0; row < dims[0]; ++row) {
    int64_t end = begin;
    while (end < n && index[end * rank] == row) ++end;
    Tensor row_indices(DType::kInt64, Shape({end - begin, rank - 1})), row_values(values.dtype(), Shape({end - begin}));
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(index + i * rank + 1, rank - 1, row_indices.data<int64_t>() + (i - begin) * (rank - 1));
    }
    CopyValues(values, begin, end - begin, &row_values);
    parts.push_back({std::move(row_indices), std::move(row_values), row_shape});
    begin = end;
  }
  return parts;
}

Status JoinSparseParts(KernelContext& ctx, absl::Span<const int64_t> batch, const std::vector<SparsePart>& parts) {
  const DType dtype = parts[0].values.dtype();
  int64_t total = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].shape.dim(0) != parts[0].shape.dim(0)) {
      return InvalidArgument("Inconsistent shape across SparseTensors: rank prior to SparseTensor[", i,
                             "] was: ", parts[0].shape.dim(0), " but rank of SparseTensor[", i,
                             "] is: ", parts[i].shape.dim(0));
    }
    total += parts[i].values.dim(0);
  }
  const auto outer = static_cast<int64_t>(batch.size());
  const int64_t inner = parts[0].shape.dim(0), rank = outer + inner;
  MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, Shape({total, rank})));
  MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({total})));
  MR_ASSIGN_OR_RETURN(Tensor * shape, ctx.AllocateOutput(2, Shape({rank})));
  int64_t* dims = std::copy(batch.begin(), batch.end(), shape->data<int64_t>());
  std::fill_n(dims, inner, 0);
  const auto strides = RowMajorStrides(batch);
  int64_t* to = indices->data<int64_t>();
  int64_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const SparsePart& part = parts[i];
    for (int64_t d = 0; d < inner; ++d) dims[d] = std::max(dims[d], part.shape.data<int64_t>()[d]);
    const int64_t rows = part.values.dim(0);
    const int64_t* from = part.indices.data<int64_t>();
    for (int64_t row = 0; row < rows; ++row, from += inner) {
      for (int64_t d = 0; d < outer; ++d) *to++ = static_cast<int64_t>(i) / strides[d] % batch[d];
      to = std::copy_n(from, inner, to);
    }
    if (dtype == DType::kVariant) {
      std::copy_n(part.values.data<Variant>(), rows, values->data<Variant>() + at);
    } else {
      CopyElements(dtype, part.values.raw_data(), 0, values->raw_data(), at, rows);
    }
    at += rows;
  }
  return absl::OkStatus();
}

}  // namespace millrace
