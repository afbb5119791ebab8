#include "millrace/ops/collective/collective_kernel.h"

#include <limits>
#include <utility>

namespace millrace {
namespace {

void ReadKey(KernelInit& init, const char* attr, int32_t* key) {
  int64_t value = 0;
  init.Attr(attr, &value);
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
    init.Fail(InvalidArgument(attr, " is ", value, ", which is not an int32"));
  }
  *key = static_cast<int32_t>(value);
}

Status CheckGroupSize(int32_t size) {
  if (size > 0) return absl::OkStatus();
  return InvalidArgument("group_size must be positive integer but got ", size);
}

}  // namespace

absl::Duration CollectiveTimeout(float seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::InfiniteDuration();
}

StatusOr<int32_t> Int32ScalarInput(const KernelContext& ctx, int i, const char* name) {
  const Tensor& tensor = ctx.input(i);
  if (tensor.rank() > 0) {
    return InvalidArgument("Unexpected dimensions on input ", name, ": it must be a scalar, got shape ",
                           tensor.shape().ToString());
  }
  return tensor.scalar<int32_t>();
}

CollectiveKernel::CollectiveKernel(KernelInit& init, CollectiveKind kind, Naming naming, int first_key)
    : naming_(naming), first_key_(first_key) {
  common_.kind = kind;
  init.Attr("T", &common_.dtype);
  float timeout = 0;
  init.Attr("timeout_seconds", &timeout);
  common_.timeout = CollectiveTimeout(timeout);
  if (naming != Naming::kAttrs) return;
  ReadKey(init, "group_size", &common_.group.size);
  ReadKey(init, "group_key", &common_.group.key);
  ReadKey(init, "instance_key", &common_.instance_key);
  init.Fail(CheckGroupSize(common_.group.size));
}

void CollectiveKernel::ReadReduction(KernelInit& init, const char* merge_attr, bool has_final_op) {
  std::string merge;
  init.Attr(merge_attr, &merge);
  common_.merge = merge == "Mul"   ? CollectiveMerge::kMul
                  : merge == "Min" ? CollectiveMerge::kMin
                  : merge == "Max" ? CollectiveMerge::kMax
                                   : CollectiveMerge::kAdd;
  if (!has_final_op) return;
  std::string final_op;
  init.Attr("final_op", &final_op);
  common_.divide = final_op == "Div";
}

Status CollectiveKernel::ReadGroup(const KernelContext& ctx, CollectiveCall* call) const {
  MR_ASSIGN_OR_RETURN(call->group.size, Int32ScalarInput(ctx, first_key_, "group_size"));
  MR_ASSIGN_OR_RETURN(call->group.key, Int32ScalarInput(ctx, first_key_ + 1, "group_key"));
  MR_ASSIGN_OR_RETURN(call->instance_key, Int32ScalarInput(ctx, first_key_ + 2, "instance_key"));
  return CheckGroupSize(call->group.size);
}

Status CollectiveKernel::ReadCommunicator(const KernelContext& ctx, CollectiveCall* call) const {
  MR_ASSIGN_OR_RETURN(const RefPtr<CollectiveCommunicator> communicator,
                      ctx.resource<CollectiveCommunicator>(first_key_));
  if (ctx.input(first_key_ + 1).num_elements() > 0) {
    return Unimplemented("Group assignments are not supported yet.");
  }
  call->group = communicator->group();
  call->group.must_be_joined = true;
  call->instance_key = communicator->NextInstance();
  if (call->timeout == absl::InfiniteDuration()) call->timeout = communicator->timeout();
  return absl::OkStatus();
}

void CollectiveKernel::ComputeAsync(KernelContext& ctx, Done done) {
  CollectiveCall call = common_;
  Status status;
  if (naming_ == Naming::kInputs) status = ReadGroup(ctx, &call);
  if (naming_ == Naming::kCommunicator) status = ReadCommunicator(ctx, &call);
  if (status.ok()) status = Prepare(ctx, &call);
  if (!status.ok()) return done(std::move(status));
  // The instance of an op whose keys are attrs is agreed on once; later steps may have other shapes.
  if (naming_ == Naming::kAttrs) call.memory = &memory_;
  StatusOr<RefPtr<CollectiveExecutor>> executor = CollectiveExecutor::Of(ctx);
  if (!executor.ok()) return done(executor.status());
  (*executor)->Run(ctx, std::move(call), std::move(done));
}

}  // namespace millrace
