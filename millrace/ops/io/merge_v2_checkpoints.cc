// MergeV2Checkpoints: merges the checkpoints of several devices into one.
#include "millrace/graph/op_schema.h"
#include "millrace/io/bundle.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class MergeV2CheckpointsKernel : public FileKernel {
 public:
  explicit MergeV2CheckpointsKernel(KernelInit& init) {
    init.Attr("delete_old_dirs", &options_.remove_directories);
    init.Attr("allow_missing_files", &options_.allow_missing);
  }

  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    const Tensor& given = ctx.input(0);
    if (given.rank() != 1) {
      return InvalidArgument("Input checkpoint_prefixes should be an 1-D tensor, got ", given.shape().ToString(),
                             " instead.");
    }
    if (ctx.input(1).rank() != 0) {
      return InvalidArgument("Input destination_prefix should be a scalar tensor, got ",
                             ctx.input(1).shape().ToString(), " instead.");
    }
    std::vector<std::string> prefixes;
    for (const std::string& name : given.flat<std::string>()) {
      MR_ASSIGN_OR_RETURN(prefixes.emplace_back(), LocalPath(name));
    }
    MR_ASSIGN_OR_RETURN(const std::string destination, LocalPath(ctx.input(1).scalar<std::string>()));
    return MergeBundles(files, prefixes, destination, options_);
  }

 private:
  MergeOptions options_;
};

Status MergeShape(ShapeContext& c) { return CheckRanks(c, {1, 0}); }

MILLRACE_OP(MergeV2Checkpoints)
    .Input("checkpoint_prefixes: string")
    .Input("destination_prefix: string")
    .Attr("delete_old_dirs: bool = true")
    .Attr("allow_missing_files: bool = false")
    .Stateful()
    .Shape(MergeShape)
    .NotDifferentiable()
    .Summary("Merges several checkpoints into one without copying their data.");

MILLRACE_KERNEL(MergeV2Checkpoints, kCpu, MergeV2CheckpointsKernel);

}  // namespace
}  // namespace millrace
