// Fill, ZerosLike and OnesLike: tensors of one value.
#include <algorithm>
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/list/tensor_list.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

class FillKernel : public Kernel {
 public:
  explicit FillKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& value = ctx.input(1);
    if (value.rank() != 0 && value.num_elements() != 1) {
      return InvalidArgument("value must be a scalar, got shape ", value.shape().ToString());
    }
    if (ctx.input(0).rank() > 1) {
      return InvalidArgument("dims must be a vector, got shape ", ctx.input(0).shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(IntList dims, ReadInts(ctx.input(0), "dims"));
    MR_ASSIGN_OR_RETURN(Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    CopyBox box;
    box.Add(shape.num_elements(), 0, 1);
    return StridedCopy(ctx, std::move(box), value, 0, out, 0);
  }
};

Status FillShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(0));
  c.set_output(0, shape);
  return absl::OkStatus();
}

Status FillGradient(GradientContext& c) {
  const Endpoint flat = c.Reshape(c.grad(), c.Ints({-1}));
  c.set_input_grad(1, c.Op("Sum", {flat, c.Ints({0})}));
  return absl::OkStatus();
}

class ZerosLikeKernel : public Kernel {
 public:
  explicit ZerosLikeKernel(KernelInit& init) {
    const DType dtype = init.input_type(0);
    if (!IsPlain(dtype) && dtype != DType::kString && dtype != DType::kVariant) {
      FailDType(init, init.input_type(0));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    if (ctx.input(0).dtype() == DType::kVariant) {
      MR_ASSIGN_OR_RETURN(Tensor zeros, ZerosLikeTensor(ctx, ctx.input(0)));
      ctx.SetOutput(0, std::move(zeros));
      return absl::OkStatus();
    }
    if (!IsPlain(ctx.input(0).dtype())) return ctx.AllocateOutput(0, shape).status();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    std::memset(out->raw_data(), 0, out->TotalBytes());
    return absl::OkStatus();
  }
};

class OnesLikeKernel : public Kernel {
 public:
  explicit OnesLikeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const DType dtype = ctx.input(0).dtype();
    const Shape shape = ctx.input(0).shape();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    const bool known = DispatchType(PlainTypes(), dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(out->data<T>(), shape.num_elements(), static_cast<T>(1.0f));
    });
    return known ? absl::OkStatus() : InvalidArgument("OnesLike does not take ", dtype);
  }
};

MILLRACE_OP(Fill)
    .Input("dims: index_type")
    .Input("value: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("index_type: {int32, int64} = int32")
    .Shape(FillShape)
    .Gradient(FillGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("A tensor filled with one value.");
MILLRACE_KERNEL(Fill, kCpu, FillKernel);
MILLRACE_KERNEL(Fill, kCuda, FillKernel);
MILLRACE_HOST_MEMORY(Fill, "GPU", "dims");
MILLRACE_HOST_KERNEL(Fill, kCuda, "T", DType::kInt32);

MILLRACE_OP(ZerosLike)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Zeros of the shape and type of a tensor.");
MILLRACE_KERNEL(ZerosLike, kCpu, ZerosLikeKernel);
MILLRACE_HOST_KERNEL(ZerosLike, kCuda, "T", DType::kInt32);

MILLRACE_OP(OnesLike)
    .Input("x: T")
    .Output("y: T")
    .Attr(
        "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, "
        "uint64, complex64, complex128, bool}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Ones of the shape and type of a tensor.");
MILLRACE_KERNEL(OnesLike, kCpu, OnesLikeKernel);
MILLRACE_HOST_KERNEL(OnesLike, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
