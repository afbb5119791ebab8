// CollectiveGather and V2: the members' tensors one after another, for all of them.
// CollectiveAllToAllV2 and V3: row i of a member's tensor goes to member i.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/collective/collective_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status GatheredShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(0, 1));
  std::vector<int64_t> size;
  const bool known = c.ConstantInts(1, &size) && size.size() == 1 && size[0] > 0;
  if (shape.known_rank()) {
    shape.set_dim(0, known && shape.dim(0) >= 0 ? shape.dim(0) * size[0] : PartialShape::kUnknown);
  }
  c.set_output(0, shape);
  return absl::OkStatus();
}

// The attr says what the output is, but TensorFlow lets the input have another size at run time.
Status GatheredAttrShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.Attr<PartialShape>("shape"));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

MILLRACE_OP(CollectiveGather)
    .Summary("Joins the tensors of a group's devices along the first dimension, in the order of the ranks.")
    .Input("input: T")
    .Output("data: T")
    .Attr("T: {float, half, double, int32, int64}")
    .Attr("group_size: int")
    .Attr("group_key: int")
    .Attr("instance_key: int")
    .Attr("shape: shape")
    .Attr("communication_hint: string = 'auto'")
    .Attr("timeout_seconds: float = 0")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(GatheredAttrShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveGatherV2)
    .Summary("CollectiveGather with the group and the instance as inputs.")
    .Input("input: T")
    .Input("group_size: int32")
    .Input("group_key: int32")
    .Input("instance_key: int32")
    .Input("ordering_token: Nordering_token * resource")
    .Output("data: T")
    .Attr("T: {float, half, double, int32, int64}")
    .Attr("communication_hint: string = 'auto'")
    .Attr("timeout_seconds: float = 0")
    .Attr("is_stateless: bool = false")
    .Attr("Nordering_token: int >= 0 = 0")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(GatheredShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveAllToAllV2)
    .Summary("Row i of a device's tensor goes to the device of rank i.")
    .Input("input: T")
    .Input("group_size: int32")
    .Input("group_key: int32")
    .Input("instance_key: int32")
    .Input("ordering_token: Nordering_token * resource")
    .Output("data: T")
    .Attr("T: {bfloat16, float, half, double, int32, int64}")
    .Attr("communication_hint: string = 'auto'")
    .Attr("timeout_seconds: float = 0")
    .Attr("is_stateless: bool = false")
    .Attr("Nordering_token: int >= 0 = 0")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(UnchangedShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveAllToAllV3)
    .Summary("CollectiveAllToAllV2 in the group of a communicator.")
    .Input("input: T")
    .Input("communicator: resource")
    .Input("group_assignment: int32")
    .Output("data: T")
    .Attr("T: {bfloat16, float, half, double, int32, int64}")
    .Attr("timeout_seconds: float = 0")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(UnchangedShape)
    .NotDifferentiable();

class CollectiveGatherKernel : public CollectiveKernel {
 public:
  explicit CollectiveGatherKernel(KernelInit& init)
      : CollectiveKernel(init, CollectiveKind::kGather,
                         init.node().type() == "CollectiveGather" ? Naming::kAttrs : Naming::kInputs, 1) {}

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override {
    call->input = ctx.input(0);
    Shape::Dims dims(call->input.shape().dims().begin(), call->input.shape().dims().end());
    if (dims.empty()) return InvalidArgument("input should have rank > 0, received 0");
    if (__builtin_mul_overflow(dims[0], int64_t{call->group.size}, &dims[0])) {
      return InvalidArgument("the gathered tensor of ", call->group.size, " times ", call->input.shape().ToString(),
                             " is too large");
    }
    MR_ASSIGN_OR_RETURN(call->shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, call->shape));
    call->output = *output;
    return absl::OkStatus();
  }
};

class CollectiveAllToAllKernel : public CollectiveKernel {
 public:
  explicit CollectiveAllToAllKernel(KernelInit& init)
      : CollectiveKernel(init, CollectiveKind::kAllToAll,
                         init.node().type() == "CollectiveAllToAllV2" ? Naming::kInputs : Naming::kCommunicator, 1) {}

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override {
    call->input = ctx.input(0);
    call->shape = call->input.shape();
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, call->shape));
    call->output = *output;
    return absl::OkStatus();
  }
};

MILLRACE_KERNEL(CollectiveGather, kCpu, CollectiveGatherKernel);
MILLRACE_KERNEL(CollectiveGatherV2, kCpu, CollectiveGatherKernel);
MILLRACE_KERNEL(CollectiveAllToAllV2, kCpu, CollectiveAllToAllKernel);
MILLRACE_KERNEL(CollectiveAllToAllV3, kCpu, CollectiveAllToAllKernel);

}  // namespace
}  // namespace millrace
