// CollectiveInitializeCommunicator: a device joins a group. CollectiveAssignGroupV2: which group a device belongs to.
#include "absl/strings/str_format.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/collective/collective_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

MILLRACE_OP(CollectiveInitializeCommunicator)
    .Summary("Joins a group and waits until it is complete.")
    .Input("group_key: int32")
    .Input("rank: int32")
    .Input("group_size: int32")
    .Output("communicator: resource")
    .Attr("communication_hint: string = 'auto'")
    .Attr("timeout_seconds: float = 0")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(ScalarShape)
    .NotDifferentiable();
MILLRACE_OP(CollectiveAssignGroupV2)
    .Summary("The key and the size of the group that lists a device in a matrix of groups.")
    .Input("group_assignment: int32")
    .Input("device_index: int32")
    .Input("base_key: int32")
    .Output("group_size: int32")
    .Output("group_key: int32")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable();

class InitializeCommunicatorKernel : public AsyncKernel {
 public:
  explicit InitializeCommunicatorKernel(KernelInit& init) {
    float timeout = 0;
    init.Attr("timeout_seconds", &timeout);
    timeout_ = CollectiveTimeout(timeout);
  }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<CollectiveGroupRef> group = ReadGroup(ctx);
    if (!group.ok()) return done(group.status());
    StatusOr<RefPtr<CollectiveExecutor>> executor = CollectiveExecutor::Of(ctx);
    if (!executor.ok()) return done(executor.status());
    (*executor)->JoinGroup(ctx, *group, timeout_,
                           [this, &ctx, group = *group, done = std::move(done)](Status status) mutable {
                             if (status.ok()) status = SetHandle(ctx, group);
                             done(std::move(status));
                           });
  }

 private:
  static StatusOr<CollectiveGroupRef> ReadGroup(const KernelContext& ctx) {
    CollectiveGroupRef group;
    MR_ASSIGN_OR_RETURN(group.key, Int32ScalarInput(ctx, 0, "group_key"));
    MR_ASSIGN_OR_RETURN(group.rank, Int32ScalarInput(ctx, 1, "rank"));
    MR_ASSIGN_OR_RETURN(group.size, Int32ScalarInput(ctx, 2, "group_size"));
    if (group.size <= 0) return InvalidArgument("group_size must be positive integer but got ", group.size);
    if (group.rank < 0) return InvalidArgument("rank must be non-negative integer but got ", group.rank);
    if (group.rank >= group.size) {
      return InvalidArgument("rank must be less than group size but got ", group.rank, " >= ", group.size);
    }
    return group;
  }

  // A communicator that is initialized again numbers its instances from 0, as the other members do.
  Status SetHandle(KernelContext& ctx, const CollectiveGroupRef& group) const {
    ResourceHandle handle;
    handle.device = ctx.device()->name();
    handle.container = "collective_op_group";
    handle.name = absl::StrFormat("%d:r%04d", group.key, group.rank);
    handle.type_name = "CollectiveGroupResource";
    const auto communicator = MakeRef<CollectiveCommunicator>(group, timeout_);
    ctx.resources()->Delete(handle.container, handle.name).IgnoreError();
    MR_RETURN_IF_ERROR(ctx.resources()->Create(handle.container, handle.name, communicator));
    handle.resource = communicator;
    ctx.SetOutput(0, MakeHandleTensor(DType::kResource, std::move(handle)));
    return absl::OkStatus();
  }

  absl::Duration timeout_;
};

class AssignGroupKernel : public Kernel {
 public:
  explicit AssignGroupKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& groups = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const int32_t device, Int32ScalarInput(ctx, 1, "device_index"));
    MR_ASSIGN_OR_RETURN(const int32_t base, Int32ScalarInput(ctx, 2, "base_key"));
    if (groups.rank() != 2) {
      return InvalidArgument("group_assignment must be a 2-d Tensor, but received tensor of shape: ",
                             groups.shape().ToString());
    }
    for (int64_t group = 0; group < groups.dim(0); ++group) {
      const auto key = static_cast<int32_t>(static_cast<uint32_t>(base) + static_cast<uint32_t>(group));
      if (key == 0) {
        return InvalidArgument("Using the reserved group_key = 0 is not allowed: group_id = ", group,
                               ", base_key = ", base);
      }
      for (int64_t i = 0; i < groups.dim(1); ++i) {
        const int32_t member = groups.data<int32_t>()[group * groups.dim(1) + i];
        if (member < 0 || member >= groups.num_elements()) {
          return InvalidArgument("Not all items in group_assignment ", groups.DebugString(),
                                 " is within [0, number of devices)");
        }
        if (member != device) continue;
        MR_ASSIGN_OR_RETURN(Tensor* const size, ctx.AllocateOutput(0, Shape()));
        MR_ASSIGN_OR_RETURN(Tensor* const out_key, ctx.AllocateOutput(1, Shape()));
        size->scalar<int32_t>() = static_cast<int32_t>(groups.dim(1));
        out_key->scalar<int32_t>() = key;
        return absl::OkStatus();
      }
    }
    return InvalidArgument("device_index ", device, " is not found in group_assignment ", groups.DebugString());
  }
};

MILLRACE_KERNEL(CollectiveInitializeCommunicator, kCpu, InitializeCommunicatorKernel);
MILLRACE_KERNEL(CollectiveAssignGroupV2, kCpu, AssignGroupKernel);

}  // namespace
}  // namespace millrace
