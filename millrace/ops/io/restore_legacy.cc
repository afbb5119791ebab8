// Restore and RestoreSlice: read one tensor from a checkpoint of the first format.
#include "millrace/ops/io/restore_legacy.h"

#include "millrace/graph/op_schema.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {

StatusOr<std::unique_ptr<LegacyCheckpointReader>> OpenLegacy(FileSystem* files, const std::string& pattern) {
  auto reader = LegacyCheckpointReader::Open(files, pattern);
  if (!reader.ok()) return WithPrefix("Unsuccessful TensorSliceReader constructor: ", reader.status());
  return reader;
}

StatusOr<Tensor> RestoreLegacy(const LegacyCheckpointReader& reader, const std::string& name,
                               const std::string& shape_and_slice, DType dtype) {
  MR_ASSIGN_OR_RETURN(const LegacyCheckpointReader::Found found, reader.Find(name));
  if (found.dtype != dtype) {
    return InvalidArgument("Expected to restore a tensor of type ", dtype, ", got a tensor of type ", found.dtype,
                           " instead: tensor_name = ", name);
  }
  if (shape_and_slice.empty()) return reader.Read(found, TensorSlice::Whole(found.full.rank()));
  MR_ASSIGN_OR_RETURN(const ShapeAndSlice part, ShapeAndSlice::Parse(shape_and_slice));
  if (part.full != found.full) {
    return InvalidArgument("Shape in shape_and_slice spec does not match the shape in the save file: ",
                           part.full.ToString(), ", save file shape: ", found.full.ToString());
  }
  return reader.Read(found, part.slice);
}

namespace {

class RestoreKernel : public FileKernel {
 public:
  explicit RestoreKernel(KernelInit& init) { init.Attr("dt", &dtype_); }
  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    static constexpr const char* kNames[] = {"file_pattern", "tensor_name", "shape_and_slice"};
    // A name may be the first element of a longer vector.
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const int64_t n = ctx.input(i).num_elements();
      if (i == 1 ? n < 1 : n != 1) {
        return InvalidArgument("Input ", i, " (", kNames[i], ") must be a string scalar; got a tensor of ", n,
                               " elements");
      }
    }
    MR_ASSIGN_OR_RETURN(const std::string pattern, LocalPath(ctx.input(0).scalar<std::string>()));
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<LegacyCheckpointReader> reader, OpenLegacy(files, pattern));
    MR_ASSIGN_OR_RETURN(Tensor tensor,
                        RestoreLegacy(*reader, ctx.input(1).scalar<std::string>(),
                                      ctx.num_inputs() > 2 ? ctx.input(2).scalar<std::string>() : "", dtype_));
    ctx.SetOutput(0, std::move(tensor));
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
};

Status RestoreShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(CheckRanks(c, {0, 0}));
  c.set_output(0, PartialShape());
  return absl::OkStatus();
}

Status RestoreSliceShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(CheckRanks(c, {0, 0, 0}));
  c.set_output(0, PartialShape());
  const Tensor* const text = c.constant(2);
  if (text == nullptr || text->num_elements() != 1 || text->scalar<std::string>().empty()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const ShapeAndSlice part, ShapeAndSlice::Parse(text->scalar<std::string>()));
  c.set_output(0, part.part);
  return absl::OkStatus();
}

MILLRACE_OP(Restore)
    .Input("file_pattern: string")
    .Input("tensor_name: string")
    .Output("tensor: dt")
    .Attr("dt: type")
    .Attr("preferred_shard: int = -1")
    .Stateful()
    .Shape(RestoreShape)
    .NotDifferentiable()
    .Summary("Reads a tensor from checkpoint files of the first format.");

MILLRACE_OP(RestoreSlice)
    .Input("file_pattern: string")
    .Input("tensor_name: string")
    .Input("shape_and_slice: string")
    .Output("tensor: dt")
    .Attr("dt: type")
    .Attr("preferred_shard: int = -1")
    .Stateful()
    .Shape(RestoreSliceShape)
    .NotDifferentiable()
    .Summary("Reads a slice of a tensor from checkpoint files of the first format.");

MILLRACE_KERNEL(Restore, kCpu, RestoreKernel);
MILLRACE_KERNEL(RestoreSlice, kCpu, RestoreKernel);

}  // namespace
}  // namespace millrace
