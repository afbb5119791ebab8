// CollectiveBcastSend and CollectiveBcastRecv, and their V2: one member's tensor, for all of them.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/collective/collective_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

#define MR_BCAST_TYPES Attr("T: {bool, float, half, double, int32, int64}")
#define MR_BCAST_HINTS Attr("communication_hint: string = 'auto'").Attr("timeout_seconds: float = 0")
#define MR_BCAST_ATTRS \
  Attr("group_size: int").Attr("group_key: int").Attr("instance_key: int").Attr("shape: shape").MR_BCAST_HINTS
#define MR_BCAST_INPUTS Input("group_size: int32").Input("group_key: int32").Input("instance_key: int32")

Status BroadcastInputShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(3));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

MILLRACE_OP(CollectiveBcastSend)
    .Summary("Sends a tensor to the other devices of a group.")
    .Input("input: T")
    .Output("data: T")
    .MR_BCAST_TYPES.MR_BCAST_ATTRS.Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(AttrShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveBcastRecv)
    .Summary("Receives the tensor that CollectiveBcastSend sends on another device of the group.")
    .Output("data: T")
    .MR_BCAST_TYPES.MR_BCAST_ATTRS.Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(AttrShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveBcastSendV2)
    .Summary("CollectiveBcastSend with the group and the instance as inputs.")
    .Input("input: T")
    .MR_BCAST_INPUTS.Output("data: T")
    .MR_BCAST_TYPES.MR_BCAST_HINTS.Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(UnchangedShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveBcastRecvV2)
    .Summary("CollectiveBcastRecv with the group, the instance and the shape as inputs.")
    .MR_BCAST_INPUTS.Input("shape: Tshape")
    .Output("data: T")
    .MR_BCAST_TYPES.Attr("Tshape: {int32, int64} = DT_INT32")
    .MR_BCAST_HINTS.Stateful()
    .Trait(OpTrait::kWaits)
    .Trait(OpTrait::kUnboundedOutput)
    .Shape(BroadcastInputShape)
    .NotDifferentiable();

Status AllocateBroadcast(KernelContext& ctx, CollectiveCall* call) {
  MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, call->shape));
  call->output = *output;
  return absl::OkStatus();
}

class BroadcastKernel : public CollectiveKernel {
 public:
  // The keys of V2 are inputs from `first_key` on.
  BroadcastKernel(KernelInit& init, bool is_source, Naming naming, int first_key)
      : CollectiveKernel(init, CollectiveKind::kBroadcast, naming, first_key) {
    common_.is_source = is_source;
    common_.subdiv_offsets = {0};
    if (naming != Naming::kAttrs) return;
    PartialShape shape;
    init.Attr("shape", &shape);
    if (shape.IsFullyDefined()) {
      common_.shape = shape.AsShape();
    } else {
      init.Fail(InvalidArgument("the shape of a broadcast must be known, got ", shape.ToString()));
    }
  }
};

class BcastSendKernel : public BroadcastKernel {
 public:
  explicit BcastSendKernel(KernelInit& init) : BroadcastKernel(init, true, Naming::kAttrs, 0) {}

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override {
    call->input = ctx.input(0);
    if (call->input.shape() != call->shape) {
      return Internal("Declared shape of op, ", call->shape.ToString(), ", does not match shape of input, ",
                      call->input.shape().ToString());
    }
    return AllocateBroadcast(ctx, call);
  }
};

class BcastRecvKernel : public BroadcastKernel {
 public:
  explicit BcastRecvKernel(KernelInit& init) : BroadcastKernel(init, false, Naming::kAttrs, 0) {}

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override { return AllocateBroadcast(ctx, call); }
};

class BcastSendV2Kernel : public BroadcastKernel {
 public:
  explicit BcastSendV2Kernel(KernelInit& init) : BroadcastKernel(init, true, Naming::kInputs, 1) {}

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override {
    call->input = ctx.input(0);
    call->shape = call->input.shape();
    return AllocateBroadcast(ctx, call);
  }
};

class BcastRecvV2Kernel : public BroadcastKernel {
 public:
  explicit BcastRecvV2Kernel(KernelInit& init) : BroadcastKernel(init, false, Naming::kInputs, 0) {}

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override {
    const Tensor& dims = ctx.input(3);
    if (dims.rank() > 1) return InvalidArgument("shape must be a vector, got ", dims.shape().ToString());
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < dims.num_elements(); ++i) {
      sizes.push_back(dims.dtype() == DType::kInt64 ? dims.data<int64_t>()[i] : dims.data<int32_t>()[i]);
    }
    MR_ASSIGN_OR_RETURN(call->shape, Shape::Make(sizes));
    return AllocateBroadcast(ctx, call);
  }
};

MILLRACE_KERNEL(CollectiveBcastSend, kCpu, BcastSendKernel);
MILLRACE_KERNEL(CollectiveBcastRecv, kCpu, BcastRecvKernel);
MILLRACE_KERNEL(CollectiveBcastSendV2, kCpu, BcastSendV2Kernel);
MILLRACE_KERNEL(CollectiveBcastRecvV2, kCpu, BcastRecvV2Kernel);

#undef MR_BCAST_TYPES
#undef MR_BCAST_HINTS
#undef MR_BCAST_ATTRS
#undef MR_BCAST_INPUTS

}  // namespace
}  // namespace millrace
