// SerializeSparse and SerializeManySparse: sparse tensors as strings or variants, three for each (indices, values,
// shape).
#include <algorithm>

#include "absl/strings/str_join.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/parsing/packed_tensor.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

Status CheckInputs(const Tensor& indices, const Tensor& values, const Tensor& shape) {
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

class SerializeKernel : public Kernel {
 public:
  explicit SerializeKernel(KernelInit& init) {
    const DType type = init.input_type(1);
    const bool packable = IsPlain(type) || type == DType::kString;
    if (!packable && !(type == DType::kVariant && init.output_type(0) == DType::kVariant)) FailDType(init, type);
  }
};

class SerializeSparseKernel : public SerializeKernel {
 public:
  using SerializeKernel::SerializeKernel;
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckInputs(ctx.input(0), ctx.input(1), ctx.input(2)));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({3})));
    for (int i = 0; i < 3; ++i) PackTensor(ctx.input(i), out, i);
    return absl::OkStatus();
  }
};

std::string RowText(const int64_t* row, int64_t n) { return absl::StrCat("[", absl::StrJoin(row, row + n, ","), "]"); }

class SerializeManySparseKernel : public SerializeKernel {
 public:
  using SerializeKernel::SerializeKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &values = ctx.input(1), &shape = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckInputs(indices, values, shape));
    const int64_t rank = shape.dim(0), n = indices.dim(0);
    const int64_t* dims = shape.data<int64_t>();
    if (rank < 2) return InvalidArgument("Rank of input SparseTensor should be > 1, but saw rank: ", rank);
    if (indices.dim(1) != rank) {
      return InvalidArgument("indices must have ", rank, " columns, as many as the shape has dimensions, not ",
                             indices.dim(1));
    }
    if (values.dim(0) != n) {
      return InvalidArgument("indices and values rows (indexing dimension) must match. (indices = ", n, ", values = ",
                             values.dim(0), ")");
    }
    for (int64_t d = 0; d < rank; ++d) {
      if (dims[d] < 0) return InvalidArgument("Dimension ", d, " of the shape must not be negative, but is ", dims[d]);
    }
    MR_RETURN_IF_ERROR(CheckRows(indices, dims));
    MR_ASSIGN_OR_RETURN(const Shape out_shape, Shape::Make({dims[0], 3}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, out_shape));
    const Tensor row_shape =
        Tensor::FromSpan<int64_t>(absl::MakeConstSpan(dims + 1, static_cast<size_t>(rank - 1)), Shape({rank - 1}));
    const int64_t* index = indices.data<int64_t>();
    int64_t begin = 0;
    for (int64_t row = 0; row < dims[0]; ++row) {
      int64_t end = begin;
      while (end < n && index[end * rank] == row) ++end;
      Tensor row_indices(DType::kInt64, Shape({end - begin, rank - 1})),
          row_values(values.dtype(), Shape({end - begin}));
      for (int64_t i = begin; i < end; ++i) {
        std::copy_n(index + i * rank + 1, rank - 1, row_indices.data<int64_t>() + (i - begin) * (rank - 1));
      }
      CopyValues(values, begin, end - begin, &row_values);
      PackTensor(std::move(row_indices), out, row * 3);
      PackTensor(std::move(row_values), out, row * 3 + 1);
      PackTensor(row_shape, out, row * 3 + 2);
      begin = end;
    }
    return absl::OkStatus();
  }

 private:
  static void CopyValues(const Tensor& from, int64_t begin, int64_t n, Tensor* to) {
    if (from.dtype() == DType::kVariant) {
      std::copy_n(from.data<Variant>() + begin, n, to->data<Variant>());
    } else {
      CopyElements(from.dtype(), from.raw_data(), begin, to->raw_data(), 0, n);
    }
  }

  // In bounds, in order and none twice.
  static Status CheckRows(const Tensor& indices, const int64_t* dims) {
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
};

Status SerializeSparseShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 2).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(2, 1).status());
  c.set_output(0, PartialShape({3}));
  return absl::OkStatus();
}

Status SerializeManySparseShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(SerializeSparseShape(c));
  c.set_output(0, PartialShape({PartialShape::kUnknown, 3}));
  return absl::OkStatus();
}

MILLRACE_OP(SerializeSparse)
    .Input("sparse_indices: int64").Input("sparse_values: T").Input("sparse_shape: int64")
    .Output("serialized_sparse: out_type").Attr("T: type").Attr("out_type: {string, variant} = DT_STRING")
    .Shape(SerializeSparseShape).NotDifferentiable()
    .Summary("A sparse tensor as three strings or variants.");
MILLRACE_OP(SerializeManySparse)
    .Input("sparse_indices: int64").Input("sparse_values: T").Input("sparse_shape: int64")
    .Output("serialized_sparse: out_type").Attr("T: type").Attr("out_type: {string, variant} = DT_STRING")
    .Shape(SerializeManySparseShape).NotDifferentiable()
    .Summary("Each row of a sparse tensor as three strings or variants.");
MILLRACE_KERNEL(SerializeSparse, kCpu, SerializeSparseKernel);
MILLRACE_KERNEL(SerializeManySparse, kCpu, SerializeManySparseKernel);

}  // namespace
}  // namespace millrace
