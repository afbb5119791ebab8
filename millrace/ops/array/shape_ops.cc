// Shape, ShapeN, Size and Rank.
#include <limits>

#include "millrace/graph/constant_ints.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class ShapeKernel : public Kernel {
 public:
  explicit ShapeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      const Shape& shape = ctx.input(i).shape();
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, Shape({shape.rank()})));
      MR_RETURN_IF_ERROR(WriteInts(shape.dims(), out));
    }
    return absl::OkStatus();
  }
};

class SizeKernel : public Kernel {
 public:
  explicit SizeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    const int64_t size = ctx.input(0).num_elements();
    return WriteInts(absl::MakeConstSpan(&size, 1), out);
  }
};

class RankKernel : public Kernel {
 public:
  explicit RankKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    out->data<int32_t>()[0] = ctx.input(0).rank();
    return absl::OkStatus();
  }
};

Status ShapeOfShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape({c.input(i).rank()}));
  return absl::OkStatus();
}

KnownInts ShapeInts(IntsContext& c) {
  const PartialShape& shape = c.input_shape(c.output_index());
  if (!shape.known_rank()) return std::nullopt;
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  for (int64_t& d : dims) d = d < 0 ? kUnknownInt : d;
  return dims;
}

KnownInts OneInt(int64_t value) { return std::vector<int64_t>{value < 0 ? kUnknownInt : value}; }
KnownInts SizeInts(IntsContext& c) { return OneInt(c.input_shape(0).num_elements()); }
KnownInts RankInts(IntsContext& c) { return OneInt(c.input_shape(0).rank()); }

MILLRACE_OP(Shape)
    .Input("input: T")
    .Output("output: out_type")
    .Attr("T: type")
    .Attr("out_type: {int32, int64} = int32")
    .Shape(ShapeOfShape)
    .NotDifferentiable()
    .Trait(OpTrait::kShapeOf)
    .Ints(ShapeInts)
    .Summary("The shape of a tensor.");
MILLRACE_KERNEL(Shape, kCpu, ShapeKernel);
MILLRACE_KERNEL(Shape, kCuda, ShapeKernel);
MILLRACE_HOST_MEMORY(Shape, "GPU", "output");

MILLRACE_OP(ShapeN)
    .Input("input: N * T")
    .Output("output: N * out_type")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("out_type: {int32, int64} = int32")
    .Shape(ShapeOfShape)
    .NotDifferentiable()
    .Trait(OpTrait::kShapeOf)
    .Ints(ShapeInts)
    .Summary("The shapes of several tensors.");
MILLRACE_KERNEL(ShapeN, kCpu, ShapeKernel);
MILLRACE_KERNEL(ShapeN, kCuda, ShapeKernel);
MILLRACE_HOST_MEMORY(ShapeN, "GPU", "output");

MILLRACE_OP(Size)
    .Input("input: T")
    .Output("output: out_type")
    .Attr("T: type")
    .Attr("out_type: {int32, int64} = int32")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Trait(OpTrait::kShapeOf)
    .Ints(SizeInts)
    .Summary("The number of elements of a tensor.");
MILLRACE_KERNEL(Size, kCpu, SizeKernel);
MILLRACE_KERNEL(Size, kCuda, SizeKernel);
MILLRACE_HOST_MEMORY(Size, "GPU", "output");

MILLRACE_OP(Rank)
    .Input("input: T")
    .Output("output: int32")
    .Attr("T: type")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Trait(OpTrait::kShapeOf)
    .Ints(RankInts)
    .Summary("The rank of a tensor.");
MILLRACE_KERNEL(Rank, kCpu, RankKernel);
MILLRACE_KERNEL(Rank, kCuda, RankKernel);
MILLRACE_HOST_MEMORY(Rank, "GPU", "output");

}  // namespace
}  // namespace millrace
