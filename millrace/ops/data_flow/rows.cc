#include "millrace/ops/data_flow/rows.h"

#include <algorithm>
#include <cstring>

#include "millrace/tensor/copy_elements.h"

namespace millrace {
namespace {

// Copies `from` into the leading corner of the part of `to` that starts at element `to_at`, dimension by dimension.
void CopyIntoCorner(const Tensor& from, int64_t from_at, int dim, Tensor* to, int64_t to_at) {
  const int rank = from.rank();
  // `to` has one additional first dimension.
  if (dim == rank || from.shape().Product(dim + 1, rank) == to->shape().Product(dim + 2, rank + 1)) {
    const int64_t n = from.shape().Product(dim, rank);
    CopyElements(from.dtype(), from.raw_data(), from_at, to->raw_data(), to_at, n);
    return;
  }
  const int64_t from_stride = from.shape().Product(dim + 1, rank);
  const int64_t to_stride = to->shape().Product(dim + 2, rank + 1);
  for (int64_t i = 0; i < from.dim(dim); ++i) {
    CopyIntoCorner(from, from_at + i * from_stride, dim + 1, to, to_at + i * to_stride);
  }
}

}  // namespace

void PutElements(const Tensor& from, Tensor* to, int64_t at) {
  CopyElements(from.dtype(), from.raw_data(), 0, to->raw_data(), at, from.num_elements());
}

StatusOr<Tensor> Zeros(DType dtype, const Shape& shape, Allocator* allocator) {
  MR_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Make(dtype, shape, allocator));
  if (IsPlain(dtype)) std::memset(zeros.raw_data(), 0, zeros.TotalBytes());
  return zeros;
}

StatusOr<Tensor> StackRows(DType dtype, const Shape& shape, absl::Span<const Tensor* const> rows,
                           Allocator* allocator) {
  Shape::Dims dims(shape.dims().begin(), shape.dims().end());
  dims.insert(dims.begin(), static_cast<int64_t>(rows.size()));
  MR_ASSIGN_OR_RETURN(const Shape stacked, Shape::Make(dims));
  if (rows.size() == 1 && rows[0]->IsAligned()) return rows[0]->Reshaped(stacked);
  MR_ASSIGN_OR_RETURN(Tensor result, Tensor::Make(dtype, stacked, allocator));
  const int64_t each = shape.num_elements();
  for (size_t i = 0; i < rows.size(); ++i) PutElements(*rows[i], &result, static_cast<int64_t>(i) * each);
  return result;
}

StatusOr<Tensor> StackPadded(DType dtype, const PartialShape& shape, absl::Span<const Tensor* const> rows,
                             Allocator* allocator) {
  Shape::Dims longest(shape.dims().begin(), shape.dims().end());
  for (int64_t& d : longest) d = std::max<int64_t>(d, 0);
  bool alike = true;
  for (const Tensor* row : rows) {
    alike &= row->shape() == rows[0]->shape();
    for (int d = 0; d < row->rank(); ++d) longest[d] = std::max(longest[d], row->dim(d));
  }
  MR_ASSIGN_OR_RETURN(const Shape each, Shape::Make(longest));
  if (alike && (rows.empty() || rows[0]->shape() == each)) return StackRows(dtype, each, rows, allocator);
  longest.insert(longest.begin(), static_cast<int64_t>(rows.size()));
  MR_ASSIGN_OR_RETURN(const Shape stacked, Shape::Make(longest));
  MR_ASSIGN_OR_RETURN(Tensor result, Zeros(dtype, stacked, allocator));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->num_elements() == 0) continue;
    CopyIntoCorner(*rows[i], 0, 0, &result, static_cast<int64_t>(i) * each.num_elements());
  }
  return result;
}

Tensor AlignedRow(const Tensor& rows, int64_t i) {
  Tensor row = rows.Row(i);
  return row.IsAligned() ? row : row.Clone();
}

}  // namespace millrace
