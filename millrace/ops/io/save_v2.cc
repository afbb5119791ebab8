// SaveV2: tensors into a checkpoint of one shard.
#include "millrace/graph/op_schema.h"
#include "millrace/io/bundle.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class SaveV2Kernel : public Kernel {
 public:
  explicit SaveV2Kernel(KernelInit&) {}
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    constexpr int kFirstTensor = 3;
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    MR_ASSIGN_OR_RETURN(const std::string prefix, PrefixInput(ctx));
    MR_ASSIGN_OR_RETURN(const NamedSlices inputs, NamedSlicesInput(ctx));
    const auto count = static_cast<size_t>(ctx.num_inputs() - kFirstTensor);
    if (inputs.names.size() != count) {
      return InvalidArgument("Got ", inputs.names.size(), " tensor names but ", count, " tensors.");
    }
    // Everything that can be wrong with the slices is said before a file is made.
    std::vector<ShapeAndSlice> parts(count);
    for (size_t i = 0; i < count; ++i) {
      if (inputs.slices[i].empty()) continue;
      MR_ASSIGN_OR_RETURN(parts[i], ShapeAndSlice::Parse(inputs.slices[i]));
      const Tensor& tensor = ctx.input(kFirstTensor + static_cast<int>(i));
      if (parts[i].part != tensor.shape()) {
        return InvalidArgument("Slice in shape_and_slice specification does not match the shape of the tensor to save: ",
                               inputs.slices[i], ", tensor ", inputs.names[i], ": ", tensor.shape().ToString());
      }
    }
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleWriter> writer,
                        BundleWriter::Create(files, prefix, ctx.cancellation()));
    for (size_t i = 0; i < count; ++i) {
      const Tensor& tensor = ctx.input(kFirstTensor + static_cast<int>(i));
      MR_RETURN_IF_ERROR(inputs.slices[i].empty() ? writer->Add(inputs.names[i], tensor)
                                                  : writer->AddSlice(inputs.names[i], parts[i], tensor));
    }
    return writer->Finish();
  }
};

Status SaveV2Shape(ShapeContext& c) { return CheckRanks(c, {0, 1, 1}); }

MILLRACE_OP(SaveV2)
    .Input("prefix: string")
    .Input("tensor_names: string")
    .Input("shape_and_slices: string")
    .Input("tensors: dtypes")
    .Attr("dtypes: list(type) >= 1")
    .Stateful()
    .Shape(SaveV2Shape)
    .NotDifferentiable()
    .Summary("Writes tensors, or slices of larger ones, into a checkpoint.");

MILLRACE_KERNEL(SaveV2, kCpu, SaveV2Kernel);

}  // namespace
}  // namespace millrace
