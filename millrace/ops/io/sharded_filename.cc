// ShardedFilename and ShardedFilespec: names of shards.
#include "absl/strings/str_format.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Checks that the inputs are scalars; the error names one that is not.
Status CheckScalars(const KernelContext& ctx, std::initializer_list<const char*> names) {
  int i = 0;
  for (const char* name : names) {
    const Tensor& input = ctx.input(i++);
    if (input.rank() != 0) return InvalidArgument(name, " must be a scalar, got shape ", input.shape().ToString());
  }
  return absl::OkStatus();
}

class ShardedFilenameKernel : public Kernel {
 public:
  explicit ShardedFilenameKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckScalars(ctx, {"basename", "shard", "num_shards"}));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, Shape()));
    output->scalar<std::string>() = absl::StrFormat("%s-%05d-of-%05d", ctx.input(0).scalar<std::string>(),
                                                    ctx.input(1).scalar<int32_t>(), ctx.input(2).scalar<int32_t>());
    return absl::OkStatus();
  }
};

class ShardedFilespecKernel : public Kernel {
 public:
  explicit ShardedFilespecKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckScalars(ctx, {"basename", "num_shards"}));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, Shape()));
    output->scalar<std::string>() =
        absl::StrFormat("%s-\?\?\?\?\?-of-%05d", ctx.input(0).scalar<std::string>(), ctx.input(1).scalar<int32_t>());
    return absl::OkStatus();
  }
};

MILLRACE_OP(ShardedFilename)
    .Input("basename: string")
    .Input("shard: int32")
    .Input("num_shards: int32")
    .Output("filename: string")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("basename-SHARD-of-COUNT, with five digits each.");

MILLRACE_OP(ShardedFilespec)
    .Input("basename: string")
    .Input("num_shards: int32")
    .Output("filename: string")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A pattern for the names of all shards.");

MILLRACE_KERNEL(ShardedFilename, kCpu, ShardedFilenameKernel);
MILLRACE_KERNEL(ShardedFilespec, kCpu, ShardedFilespecKernel);

}  // namespace
}  // namespace millrace
