// Save and SaveSlices: write tensors to a checkpoint of the first format, a single file.
#include "millrace/graph/op_schema.h"
#include "millrace/io/legacy_checkpoint.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

template <bool kSlices>
class SaveKernel : public FileKernel {
 public:
  explicit SaveKernel(KernelInit&) {}
  Status ComputeFiles(KernelContext& ctx) const override {
    constexpr int kFirstTensor = kSlices ? 3 : 2;
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    if (ctx.input(0).num_elements() != 1) {
      return InvalidArgument("Input 0 (filename) must be a string scalar; got a tensor of ",
                             ctx.input(0).num_elements(), " elements");
    }
    MR_ASSIGN_OR_RETURN(const std::string path, LocalPath(ctx.input(0).scalar<std::string>()));
    const absl::Span<const std::string> names = ctx.input(1).flat<std::string>();
    const auto count = static_cast<size_t>(ctx.num_inputs() - kFirstTensor);
    if (names.size() != count) {
      return InvalidArgument("Expected totally ", names.size() + kFirstTensor,
                             " inputs as input #1 (which is a string tensor of saved names) contains ", names.size(),
                             " names, but received ", ctx.num_inputs(), " inputs");
    }
    if (kSlices && ctx.input(2).num_elements() != ctx.input(1).num_elements()) {
      return InvalidArgument("Expected ", names.size(), " elements for the tensor shapes and slices but got ",
                             ctx.input(2).num_elements());
    }
    LegacyCheckpointWriter writer;
    for (size_t i = 0; i < count; ++i) {
      const Tensor& tensor = ctx.input(kFirstTensor + static_cast<int>(i));
      ShapeAndSlice part = {tensor.shape(), TensorSlice::Whole(tensor.rank()), tensor.shape()};
      if (kSlices && !ctx.input(2).flat<std::string>()[i].empty()) {
        MR_ASSIGN_OR_RETURN(part, ShapeAndSlice::Parse(ctx.input(2).flat<std::string>()[i]));
      }
      MR_RETURN_IF_ERROR(writer.Add(names[i], part, tensor));
    }
    return writer.Write(files, path);
  }
};

Status SaveShape(ShapeContext& c) { return CheckRanks(c, {0, 1}); }
Status SaveSlicesShape(ShapeContext& c) { return CheckRanks(c, {0, 1, 1}); }

MILLRACE_OP(Save)
    .Input("filename: string")
    .Input("tensor_names: string")
    .Input("data: T")
    .Attr("T: list(type) >= 1")
    .Stateful()
    .Shape(SaveShape)
    .NotDifferentiable()
    .Summary("Writes tensors to a checkpoint file of the first format.");

MILLRACE_OP(SaveSlices)
    .Input("filename: string")
    .Input("tensor_names: string")
    .Input("shapes_and_slices: string")
    .Input("data: T")
    .Attr("T: list(type) >= 1")
    .Stateful()
    .Shape(SaveSlicesShape)
    .NotDifferentiable()
    .Summary("Writes tensors, or slices of larger ones, to a checkpoint file of the first format.");

MILLRACE_KERNEL(Save, kCpu, SaveKernel<false>);
MILLRACE_KERNEL(SaveSlices, kCpu, SaveKernel<true>);

}  // namespace
}  // namespace millrace
