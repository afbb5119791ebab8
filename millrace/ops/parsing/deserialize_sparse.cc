// DeserializeSparse and DeserializeManySparse: the inverse of SerializeSparse and SerializeManySparse, as one sparse
// tensor.
#include <vector>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/parsing/packed_tensor.h"
#include "millrace/ops/parsing/sparse_parts.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

StatusOr<SparsePart> UnpackPart(const Tensor& packed, int64_t i, DType dtype) {
  SparsePart part;
  MR_ASSIGN_OR_RETURN(part.indices, UnpackTensor(packed, 3 * i));
  MR_ASSIGN_OR_RETURN(part.values, UnpackTensor(packed, 3 * i + 1));
  MR_ASSIGN_OR_RETURN(part.shape, UnpackTensor(packed, 3 * i + 2));
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
    return InvalidArgument("Requested SparseTensor of type ", dtype, " but SparseTensor[", i,
                           "].values.dtype() == ", part.values.dtype());
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
    std::vector<SparsePart> parts;
    for (int64_t i = 0; i < n; ++i) {
      MR_ASSIGN_OR_RETURN(SparsePart part, UnpackPart(packed, i, dtype_));
      parts.push_back(std::move(part));
    }
    if (outer == 0) {
      ctx.SetOutput(0, std::move(parts[0].indices));
      ctx.SetOutput(1, std::move(parts[0].values));
      ctx.SetOutput(2, std::move(parts[0].shape));
      return absl::OkStatus();
    }
    return JoinSparseParts(ctx, packed.shape().dims().first(static_cast<size_t>(outer)), parts);
  }

 private:
  DType dtype_ = DType::kInvalid;
};

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

MILLRACE_OP(DeserializeSparse)
    .Input("serialized_sparse: Tserialized")
    .Output("sparse_indices: int64")
    .Output("sparse_values: dtype")
    .Output("sparse_shape: int64")
    .Attr("dtype: type")
    .Attr("Tserialized: {string, variant} = DT_STRING")
    .Shape(DeserializeSparseShape)
    .NotDifferentiable()
    .Summary("Deserializes sparse tensors and stacks them.");
MILLRACE_OP(DeserializeManySparse)
    .Input("serialized_sparse: string")
    .Output("sparse_indices: int64")
    .Output("sparse_values: dtype")
    .Output("sparse_shape: int64")
    .Attr("dtype: type")
    .Shape(DeserializeSparseShape)
    .NotDifferentiable()
    .Summary("Deserializes rows into one sparse tensor.");
MILLRACE_KERNEL(DeserializeSparse, kCpu, DeserializeSparseKernel);
MILLRACE_KERNEL(DeserializeManySparse, kCpu, DeserializeSparseKernel);

}  // namespace
}  // namespace millrace
