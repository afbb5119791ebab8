// RestoreV2: reads tensors from a checkpoint of either format.
#include <algorithm>

#include "millrace/graph/op_schema.h"
#include "millrace/io/bundle.h"
#include "millrace/io/legacy_checkpoint.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/ops/io/restore_legacy.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class RestoreV2Kernel : public FileKernel {
 public:
  explicit RestoreV2Kernel(KernelInit& init) { init.Attr("dtypes", &dtypes_); }

  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    MR_ASSIGN_OR_RETURN(const std::string prefix, PrefixInput(ctx));
    MR_ASSIGN_OR_RETURN(const NamedSlices inputs, NamedSlicesInput(ctx));
    if (inputs.names.size() != dtypes_.size()) {
      return InvalidArgument("Got ", inputs.names.size(), " tensor names, but ", dtypes_.size(), " expected dtypes.");
    }
    const StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(files, prefix);
    // Programs also use this op to restore checkpoints of the first format.
    if (absl::IsNotFound(reader.status())) return RestoreLegacyAll(ctx, files, prefix, inputs);
    MR_RETURN_IF_ERROR(reader.status());

    std::vector<BundleTensor> found(inputs.names.size());
    std::vector<Tensor*> outputs(inputs.names.size());
    // In name order, like the index.
    std::vector<size_t> order(inputs.names.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return inputs.names[a] < inputs.names[b]; });
    for (const size_t i : order) {
      if (inputs.slices[i].empty()) {
        MR_ASSIGN_OR_RETURN(found[i], (*reader)->Find(inputs.names[i]));
      } else {
        MR_ASSIGN_OR_RETURN(const ShapeAndSlice part, ShapeAndSlice::Parse(inputs.slices[i]));
        MR_ASSIGN_OR_RETURN(found[i], (*reader)->FindSlice(inputs.names[i], part));
      }
      if (found[i].dtype != dtypes_[i]) {
        return InvalidArgument("tensor_name = ", inputs.names[i], "; expected dtype ", dtypes_[i],
                               " does not equal original dtype ", found[i].dtype);
      }
    }
    for (size_t i = 0; i < found.size(); ++i) {
      MR_ASSIGN_OR_RETURN(outputs[i], ctx.AllocateOutput(static_cast<int>(i), found[i].shape));
    }
    return (*reader)->Read(found, outputs, ctx.device()->intra_op_pool(), ctx.cancellation());
  }

 private:
  Status RestoreLegacyAll(KernelContext& ctx, FileSystem* files, const std::string& prefix,
                          const NamedSlices& inputs) const {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<LegacyCheckpointReader> reader, OpenLegacy(files, prefix));
    for (size_t i = 0; i < inputs.names.size(); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor tensor, RestoreLegacy(*reader, inputs.names[i], inputs.slices[i], dtypes_[i]));
      ctx.SetOutput(static_cast<int>(i), std::move(tensor));
    }
    return absl::OkStatus();
  }

  std::vector<DType> dtypes_;
};

// A slice spec determines the shape; otherwise it is known only from the file.
Status RestoreV2Shape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(CheckRanks(c, {0, 1, 1}));
  const Tensor* const slices = c.constant(2);
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, PartialShape());
    if (slices == nullptr || slices->num_elements() != c.num_outputs()) continue;
    const std::string& text = slices->flat<std::string>()[static_cast<size_t>(i)];
    if (text.empty()) continue;
    MR_ASSIGN_OR_RETURN(const ShapeAndSlice part, ShapeAndSlice::Parse(text));
    c.set_output(i, part.part);
  }
  return absl::OkStatus();
}

MILLRACE_OP(RestoreV2)
    .Input("prefix: string")
    .Input("tensor_names: string")
    .Input("shape_and_slices: string")
    .Output("tensors: dtypes")
    .Attr("dtypes: list(type) >= 1")
    .Stateful()
    .Shape(RestoreV2Shape)
    .NotDifferentiable()
    .Summary("Reads tensors, or slices of them, from a checkpoint.");

MILLRACE_KERNEL(RestoreV2, kCpu, RestoreV2Kernel);

}  // namespace
}  // namespace millrace
