// CollectiveReduce, V2 and V3: the sum, product, minimum or maximum of the members' tensors, for all of them.
// CollectiveReduceScatterV2: the same, but each member gets its own part.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/collective/collective_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

#define MR_REDUCED_TYPES Attr("T: {bfloat16, float, half, double, int32, int64}")
#define MR_REDUCTION_ATTRS Attr("merge_op: {'Min', 'Max', 'Mul', 'Add'}").Attr("final_op: {'Id', 'Div'}")
#define MR_HINT_ATTRS Attr("communication_hint: string = 'auto'").Attr("timeout_seconds: float = 0")
#define MR_ORDERING_ATTRS \
  Attr("is_stateless: bool = false").Attr("Nordering_token: int >= 0 = 0").Attr("max_subdivs_per_device: int = -1")
#define MR_GROUP_INPUTS Input("group_size: int32").Input("group_key: int32").Input("instance_key: int32")

// The first dimension is divided among the members.
Status ScatteredShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(0, 1));
  if (!shape.known_rank()) {
    c.set_output(0, shape);
    return absl::OkStatus();
  }
  std::vector<int64_t> size;
  const bool known = c.ConstantInts(1, &size) && size.size() == 1 && size[0] > 0 && shape.dim(0) >= 0;
  shape.set_dim(0, known ? shape.dim(0) / size[0] : PartialShape::kUnknown);
  c.set_output(0, shape);
  return absl::OkStatus();
}

MILLRACE_OP(CollectiveReduce)
    .Summary("Merges the tensors of a group's devices; all of them get the result.")
    .Input("input: T")
    .Output("data: T")
    .MR_REDUCED_TYPES.Attr("group_size: int")
    .Attr("group_key: int")
    .Attr("instance_key: int")
    .MR_REDUCTION_ATTRS.Attr("subdiv_offsets: list(int)")
    .Attr("wait_for: list(int) = []")
    .MR_HINT_ATTRS.Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(UnchangedShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveReduceV2)
    .Summary("CollectiveReduce with the group and the instance as inputs.")
    .Input("input: T")
    .MR_GROUP_INPUTS.Input("ordering_token: Nordering_token * resource")
    .Output("data: T")
    .MR_REDUCED_TYPES.MR_REDUCTION_ATTRS.MR_HINT_ATTRS.MR_ORDERING_ATTRS.Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(UnchangedShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveReduceV3)
    .Summary("CollectiveReduce in the group of a communicator.")
    .Input("input: T")
    .Input("communicator: resource")
    .Input("group_assignment: int32")
    .Output("data: T")
    .MR_REDUCED_TYPES.Attr("reduction: {'Min', 'Max', 'Mul', 'Add'}")
    .Attr("timeout_seconds: float = 0")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(UnchangedShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveReduceScatterV2)
    .Summary("Merges the tensors of a group's devices; each gets its part along the first dimension.")
    .Input("input: T")
    .MR_GROUP_INPUTS.Input("ordering_token: Nordering_token * resource")
    .Output("data: T")
    .MR_REDUCED_TYPES.MR_REDUCTION_ATTRS.MR_HINT_ATTRS.MR_ORDERING_ATTRS.Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(ScatteredShape)
    .NotDifferentiable();

Status PrepareReduce(KernelContext& ctx, CollectiveCall* call) {
  call->input = ctx.input(0);
  call->shape = call->input.shape();
  MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, call->shape));
  call->output = *output;
  return absl::OkStatus();
}

class CollectiveReduceKernel : public CollectiveKernel {
 public:
  explicit CollectiveReduceKernel(KernelInit& init)
      : CollectiveKernel(init, CollectiveKind::kReduce, Naming::kAttrs, 0) {
    ReadReduction(init, "merge_op", /*has_final_op=*/true);
    std::vector<int64_t> offsets;
    init.Attr("subdiv_offsets", &offsets);
    // A ring for each; the offset is within the devices of a task.
    constexpr int64_t kMaxOffset = 1 << 20;
    if (offsets.size() > 1024) init.Fail(InvalidArgument("there are ", offsets.size(), " subdiv_offsets"));
    for (const int64_t offset : offsets) {
      if (offset < -kMaxOffset || offset > kMaxOffset) init.Fail(InvalidArgument("subdiv_offsets has ", offset));
      common_.subdiv_offsets.push_back(static_cast<int>(offset));
    }
  }

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override { return PrepareReduce(ctx, call); }
};

class CollectiveReduceV2Kernel : public CollectiveKernel {
 public:
  explicit CollectiveReduceV2Kernel(KernelInit& init) : CollectiveReduceV2Kernel(init, CollectiveKind::kReduce) {}

 protected:
  CollectiveReduceV2Kernel(KernelInit& init, CollectiveKind kind) : CollectiveKernel(init, kind, Naming::kInputs, 1) {
    ReadReduction(init, "merge_op", /*has_final_op=*/true);
    int64_t subdivisions = -1;
    init.Attr("max_subdivs_per_device", &subdivisions);
    if (subdivisions < -1 || subdivisions > 1024) {
      init.Fail(InvalidArgument("max_subdivs_per_device is ", subdivisions, "; -1 to 1024 are possible"));
    }
    common_.max_subdivs_per_device = static_cast<int>(subdivisions);
  }
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override { return PrepareReduce(ctx, call); }
};

class CollectiveReduceV3Kernel : public CollectiveKernel {
 public:
  explicit CollectiveReduceV3Kernel(KernelInit& init)
      : CollectiveKernel(init, CollectiveKind::kReduce, Naming::kCommunicator, 1) {
    ReadReduction(init, "reduction", /*has_final_op=*/false);
  }

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override { return PrepareReduce(ctx, call); }
};

class CollectiveReduceScatterKernel : public CollectiveReduceV2Kernel {
 public:
  explicit CollectiveReduceScatterKernel(KernelInit& init)
      : CollectiveReduceV2Kernel(init, CollectiveKind::kReduceScatter) {}

 protected:
  Status Prepare(KernelContext& ctx, CollectiveCall* call) override {
    call->input = ctx.input(0);
    call->shape = call->input.shape();
    if (call->shape.rank() < 1 || call->shape.dim(0) % call->group.size != 0) {
      return InvalidArgument("the first dimension of the input, ", call->shape.ToString(),
                             ", must be a multiple of the group size, ", call->group.size);
    }
    call->shape.set_dim(0, call->shape.dim(0) / call->group.size);
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, call->shape));
    call->output = *output;
    return absl::OkStatus();
  }
};

MILLRACE_KERNEL(CollectiveReduce, kCpu, CollectiveReduceKernel);
MILLRACE_KERNEL(CollectiveReduceV2, kCpu, CollectiveReduceV2Kernel);
MILLRACE_KERNEL(CollectiveReduceV3, kCpu, CollectiveReduceV3Kernel);
MILLRACE_KERNEL(CollectiveReduceScatterV2, kCpu, CollectiveReduceScatterKernel);

#undef MR_REDUCED_TYPES
#undef MR_REDUCTION_ATTRS
#undef MR_HINT_ATTRS
#undef MR_ORDERING_ATTRS
#undef MR_GROUP_INPUTS

}  // namespace
}  // namespace millrace
