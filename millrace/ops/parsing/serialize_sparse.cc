// SerializeSparse and SerializeManySparse: sparse tensors as strings or variants, three for each (indices, values,
// shape).
#include <vector>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/parsing/packed_tensor.h"
#include "millrace/ops/parsing/sparse_parts.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

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
    MR_RETURN_IF_ERROR(CheckSparseInputs(ctx.input(0), ctx.input(1), ctx.input(2)));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({3})));
    for (int i = 0; i < 3; ++i) PackTensor(ctx.input(i), out, i);
    return absl::OkStatus();
  }
};

class SerializeManySparseKernel : public SerializeKernel {
 public:
  using SerializeKernel::SerializeKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(std::vector<SparsePart> parts, SplitSparseRows(ctx.input(0), ctx.input(1), ctx.input(2)));
    const auto n = static_cast<int64_t>(parts.size());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({n, 3})));
    for (int64_t row = 0; row < n; ++row) {
      SparsePart& part = parts[static_cast<size_t>(row)];
      PackTensor(std::move(part.indices), out, row * 3);
      PackTensor(std::move(part.values), out, row * 3 + 1);
      PackTensor(std::move(part.shape), out, row * 3 + 2);
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
    .Input("sparse_indices: int64")
    .Input("sparse_values: T")
    .Input("sparse_shape: int64")
    .Output("serialized_sparse: out_type")
    .Attr("T: type")
    .Attr("out_type: {string, variant} = DT_STRING")
    .Shape(SerializeSparseShape)
    .NotDifferentiable()
    .Summary("Serializes a sparse tensor as three strings or variants.");
MILLRACE_OP(SerializeManySparse)
    .Input("sparse_indices: int64")
    .Input("sparse_values: T")
    .Input("sparse_shape: int64")
    .Output("serialized_sparse: out_type")
    .Attr("T: type")
    .Attr("out_type: {string, variant} = DT_STRING")
    .Shape(SerializeManySparseShape)
    .NotDifferentiable()
    .Summary("Serializes each row of a sparse tensor as three strings or variants.");
MILLRACE_KERNEL(SerializeSparse, kCpu, SerializeSparseKernel);
MILLRACE_KERNEL(SerializeManySparse, kCpu, SerializeManySparseKernel);

}  // namespace
}  // namespace millrace
