// SerializeSparse and SerializeManySparse, and their inverses: sparse tensors as strings or variants, three for each
// (indices, values, shape).
#include <algorithm>

#include "absl/strings/str_join.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/tensor_proto.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

// A tensor as an element of a variant tensor.
class TensorValue : public VariantValue {
 public:
  explicit TensorValue(Tensor tensor) : tensor_(std::move(tensor)) {}
  const Tensor& tensor() const { return tensor_; }
  absl::string_view TypeName() const override { return "tensorflow::Tensor"; }
  std::string DebugString() const override { return tensor_.DebugString(); }
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override {
    metadata->clear();
    *tensors = {tensor_};
    return absl::OkStatus();
  }

 private:
  const Tensor tensor_;
};

// Element `at` of a string or variant tensor, as a tensor.
StatusOr<Tensor> Unpack(const Tensor& packed, int64_t at) {
  if (packed.dtype() == DType::kVariant) {
    const TensorValue* value = packed.data<Variant>()[at].Get<TensorValue>();
    if (value == nullptr) return InvalidArgument("Could not get a tensor from element ", at, " of serialized_sparse");
    return value->tensor();
  }
  pb::TensorProto proto;
  if (!proto.ParseFromString(packed.data<std::string>()[at])) {
    return InvalidArgument("Could not parse serialized proto: element ", at, " of serialized_sparse is no TensorProto");
  }
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  if (!tensor.ok()) return InvalidArgument("Could not construct tensor from proto: ", tensor.status().message());
  return tensor;
}

void Pack(Tensor tensor, Tensor* packed, int64_t at) {
  if (packed->dtype() == DType::kVariant) {
    packed->data<Variant>()[at] = Variant(MakeRef<TensorValue>(std::move(tensor)));
    return;
  }
  pb::TensorProto proto;
  TensorToProto(tensor, &proto);
  proto.SerializeToString(&packed->data<std::string>()[at]);
}

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
    for (int i = 0; i < 3; ++i) Pack(ctx.input(i), out, i);
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
      Pack(std::move(row_indices), out, row * 3);
      Pack(std::move(row_values), out, row * 3 + 1);
      Pack(row_shape, out, row * 3 + 2);
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

// One sparse tensor of a serialized batch.
struct Part {
  Tensor indices, values, shape;
};

StatusOr<Part> UnpackPart(const Tensor& packed, int64_t i, DType dtype) {
  Part part;
  MR_ASSIGN_OR_RETURN(part.indices, Unpack(packed, 3 * i));
  MR_ASSIGN_OR_RETURN(part.values, Unpack(packed, 3 * i + 1));
  MR_ASSIGN_OR_RETURN(part.shape, Unpack(packed, 3 * i + 2));
  const auto wrong = [&](int k, const char* what, const Tensor& got) {
    return InvalidArgument("Expected serialized_sparse[", i, ", ", k, "] to represent ", what, " but received ",
                           got.dtype(), " of shape ", got.shape().ToString());
  };
  if (part.indices.rank() != 2 || part.indices.dtype() != DType::kInt64) {
    return wrong(0, "an index matrix", part.indices);
  }
  if (part.values.rank() != 1) return wrong(1, "a values vector", part.values);
  if (part.shape.rank() != 1 || part.shape.dtype() != DType::kInt64) return wrong(2, "a shape vector", part.shape);
  if (part.values.dtype() != dtype) {
    return InvalidArgument("Requested SparseTensor of type ", dtype, " but SparseTensor[", i, "].values.dtype() == ",
                           part.values.dtype());
  }
  if (part.indices.dim(0) != part.values.dim(0)) {
    return InvalidArgument("Expected row counts of SparseTensor[", i, "].indices and SparseTensor[", i,
                           "].values to match but they do not: ", part.indices.dim(0), " vs. ", part.values.dim(0));
  }
  if (part.indices.dim(1) != part.shape.dim(0)) {
    return InvalidArgument("Expected column counts of SparseTensor[", i, "].indices to match size of SparseTensor[", i,
                           "].shape but they do not: ", part.indices.dim(1), " vs. ", part.shape.dim(0));
  }
  return part;
}

class DeserializeSparseKernel : public Kernel {
 public:
  explicit DeserializeSparseKernel(KernelInit& init) { init.Attr("dtype", &dtype_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor& packed = ctx.input(0);
    const int outer = packed.rank() - 1;
    if (outer < 0) return InvalidArgument("Serialized sparse should have non-zero rank ", packed.shape().ToString());
    if (packed.dim(outer) != 3) {
      return InvalidArgument("Serialized sparse should have 3 as the last dimension ", packed.shape().ToString());
    }
    const int64_t n = packed.num_elements() / 3;
    if (n == 0) {
      return InvalidArgument("Serialized sparse should have at least 1 serialized tensor, but has a zero dimension ",
                             packed.shape().ToString());
    }
    std::vector<Part> parts;
    int64_t total = 0;
    for (int64_t i = 0; i < n; ++i) {
      MR_ASSIGN_OR_RETURN(Part part, UnpackPart(packed, i, dtype_));
      if (i > 0 && part.shape.dim(0) != parts[0].shape.dim(0)) {
        return InvalidArgument("Inconsistent shape across SparseTensors: rank prior to SparseTensor[", i, "] was: ",
                               parts[0].shape.dim(0), " but rank of SparseTensor[", i, "] is: ", part.shape.dim(0));
      }
      total += part.values.dim(0);
      parts.push_back(std::move(part));
    }
    if (outer == 0) {
      ctx.SetOutput(0, std::move(parts[0].indices));
      ctx.SetOutput(1, std::move(parts[0].values));
      ctx.SetOutput(2, std::move(parts[0].shape));
      return absl::OkStatus();
    }
    return Join(ctx, packed.shape().dims().first(static_cast<size_t>(outer)), parts, total);
  }

 private:
  // The parts below each other, with their place in the batch before their own coordinates; as large as the
  // largest of them.
  Status Join(KernelContext& ctx, absl::Span<const int64_t> batch, const std::vector<Part>& parts,
              int64_t total) const {
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
      const Part& part = parts[i];
      for (int64_t d = 0; d < inner; ++d) dims[d] = std::max(dims[d], part.shape.data<int64_t>()[d]);
      const int64_t rows = part.values.dim(0);
      const int64_t* from = part.indices.data<int64_t>();
      for (int64_t row = 0; row < rows; ++row, from += inner) {
        for (int64_t d = 0; d < outer; ++d) *to++ = static_cast<int64_t>(i) / strides[d] % batch[d];
        to = std::copy_n(from, inner, to);
      }
      if (dtype_ == DType::kVariant) {
        std::copy_n(part.values.data<Variant>(), rows, values->data<Variant>() + at);
      } else {
        CopyElements(dtype_, part.values.raw_data(), 0, values->raw_data(), at, rows);
      }
      at += rows;
    }
    return absl::OkStatus();
  }

  DType dtype_ = DType::kInvalid;
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

Status DeserializeSparseShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  if (in.known_rank() && (in.rank() < 1 || (in.dim(in.rank() - 1) >= 0 && in.dim(in.rank() - 1) != 3))) {
    return InvalidArgument("serialized_sparse must have 3 as its last dimension, but has shape ", in.ToString());
  }
  c.set_output(0, PartialShape::UnknownOfRank(2));
  c.set_output(1, PartialShape::UnknownOfRank(1));
  c.set_output(2, PartialShape::UnknownOfRank(1));
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
MILLRACE_OP(DeserializeSparse)
    .Input("serialized_sparse: Tserialized")
    .Output("sparse_indices: int64").Output("sparse_values: dtype").Output("sparse_shape: int64")
    .Attr("dtype: type").Attr("Tserialized: {string, variant} = DT_STRING")
    .Shape(DeserializeSparseShape).NotDifferentiable()
    .Summary("Serialized sparse tensors as one.");
MILLRACE_OP(DeserializeManySparse)
    .Input("serialized_sparse: string")
    .Output("sparse_indices: int64").Output("sparse_values: dtype").Output("sparse_shape: int64").Attr("dtype: type")
    .Shape(DeserializeSparseShape).NotDifferentiable()
    .Summary("Serialized rows as one sparse tensor.");
MILLRACE_KERNEL(SerializeSparse, kCpu, SerializeSparseKernel);
MILLRACE_KERNEL(SerializeManySparse, kCpu, SerializeManySparseKernel);
MILLRACE_KERNEL(DeserializeSparse, kCpu, DeserializeSparseKernel);
MILLRACE_KERNEL(DeserializeManySparse, kCpu, DeserializeSparseKernel);

}  // namespace
}  // namespace millrace
