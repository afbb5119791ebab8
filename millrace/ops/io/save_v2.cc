// SaveV2: writes tensors to a checkpoint of one shard. _SaveVariables: reads some of them directly from variables.
#include "millrace/base/background_pace.h"
#include "millrace/base/thread_priority.h"
#include "millrace/graph/op_schema.h"
#include "millrace/io/bundle.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Checkpoints from this size on are throttled in favour of training; a smaller one is finished quickly and is not.
constexpr size_t kLargeBytes = size_t{16} << 20;

// A large checkpoint takes seconds, so it is written on a thread of its own.
class SaveV2Kernel : public FileKernel {
 public:
  explicit SaveV2Kernel(KernelInit&) {}
  Status ComputeFiles(KernelContext& ctx) const override { return Save(ctx); }
  bool is_long() const override { return true; }

 private:
  static Status Save(KernelContext& ctx) {
    constexpr int kFirstTensor = 3;
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    MR_ASSIGN_OR_RETURN(const std::string prefix, PrefixInput(ctx));
    MR_ASSIGN_OR_RETURN(const NamedSlices inputs, NamedSlicesInput(ctx));
    const auto count = static_cast<size_t>(ctx.num_inputs() - kFirstTensor);
    if (inputs.names.size() != count) {
      return InvalidArgument("Got ", inputs.names.size(), " tensor names but ", count, " tensors.");
    }
    std::vector<Source> sources(count);
    for (size_t i = 0; i < count; ++i)
      MR_RETURN_IF_ERROR(FindSource(ctx, kFirstTensor + static_cast<int>(i), &sources[i]));
    // Validate all slices before creating a file.
    std::vector<ShapeAndSlice> parts(count);
    for (size_t i = 0; i < count; ++i) {
      if (inputs.slices[i].empty()) continue;
      MR_ASSIGN_OR_RETURN(parts[i], ShapeAndSlice::Parse(inputs.slices[i]));
      if (parts[i].part != sources[i].value.shape()) {
        return InvalidArgument(
            "Slice in shape_and_slice specification does not match the shape of the tensor to save: ", inputs.slices[i],
            ", tensor ", inputs.names[i], ": ", sources[i].value.shape().ToString());
      }
    }
    size_t bytes = 0;
    for (const Source& source : sources) bytes += source.value.TotalBytes();
    if (bytes >= kLargeBytes) LowerThreadPriority();
    BackgroundPace pace;
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleWriter> writer,
                        BundleWriter::Create(files, prefix, ctx.cancellation(), [&pace] {
                          FileThreads::NoteProgress();
                          return pace.Rest();
                        }));
    for (size_t i = 0; i < count; ++i) {
      const ShapeAndSlice* const part = inputs.slices[i].empty() ? nullptr : &parts[i];
      MR_RETURN_IF_ERROR(Add(writer.get(), inputs.names[i], part, sources[i]));
    }
    return writer->Finish();
  }

  // A tensor, or the memory of a variable whose rows may change concurrently.
  struct Source {
    Tensor value;
    RefPtr<Variable> variable = {};
    RowLocks* locks = nullptr;  // null if nothing changes concurrently
  };

  static Status FindSource(KernelContext& ctx, int i, Source* source) {
    if (ctx.input(i).dtype() != DType::kResource) {
      source->value = ctx.input(i);
      return absl::OkStatus();
    }
    StatusOr<RefPtr<Variable>> variable = ctx.resource<Variable>(i);
    if (absl::IsNotFound(variable.status()) || (variable.ok() && !(*variable)->IsInitialized())) {
      // The same error as ReadVariableOp, which this replaces.
      const ResourceHandle& handle = ctx.input(i).scalar<ResourceHandle>();
      return FailedPrecondition("Error while reading resource variable ", handle.name, " from container ",
                                handle.container, ": the variable was uninitialized");
    }
    MR_RETURN_IF_ERROR(variable.status());
    source->variable = *std::move(variable);
    // Strings are copied, because their bytes are not in the tensor.
    if (!IsPlain(source->variable->dtype())) {
      MR_ASSIGN_OR_RETURN(source->value, source->variable->Read());
      return absl::OkStatus();
    }
    return source->variable->ReadRows([&](const Tensor& value, RowLocks& locks) {
      // Retained beyond the callback, unlike elsewhere: the tensor keeps the memory alive, and each row is read under
      // its lock.
      source->value = value;
      source->locks = &locks;
      return absl::OkStatus();
    });
  }

  static Status Add(BundleWriter* writer, const std::string& name, const ShapeAndSlice* part, const Source& source) {
    const Tensor& value = source.value;
    if (source.locks == nullptr)
      return part == nullptr ? writer->Add(name, value) : writer->AddSlice(name, *part, value);
    // Whole rows, as many lock blocks as make a good piece size.
    constexpr int64_t kPieceBytes = int64_t{1} << 20;
    const RowLayout layout(value);
    const int64_t row_bytes = layout.row_size * static_cast<int64_t>(SizeOf(value.dtype()));
    const int64_t blocks = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, layout.block_rows * row_bytes));
    std::string copy;
    int64_t row = 0;
    return writer->AddPieces(name, part, value.dtype(), value.shape(), [&]() -> absl::string_view {
      copy.clear();
      for (int64_t i = 0; i < blocks && row < layout.rows; ++i) {
        const int64_t end = std::min(layout.rows, row + layout.block_rows);
        MutexLock lock(&source.locks->stripe(layout.StripeOfRow(row)));
        copy.append(static_cast<const char*>(value.raw_data()) + row * row_bytes,
                    static_cast<size_t>((end - row) * row_bytes));
        row = end;
      }
      return copy;
    });
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
    .Summary("Writes tensors, or slices of larger ones, to a checkpoint.");

// Created from SaveV2 by the pass saved_reads: inputs of type resource are variables.
MILLRACE_OP(_SaveVariables)
    .Input("prefix: string")
    .Input("tensor_names: string")
    .Input("shape_and_slices: string")
    .Input("tensors: dtypes")
    .Attr("dtypes: list(type) >= 1")
    .Stateful()
    .Shape(SaveV2Shape)
    .NotDifferentiable()
    .Summary("Writes tensors and variables to a checkpoint.");

MILLRACE_KERNEL(SaveV2, kCpu, SaveV2Kernel);
MILLRACE_KERNEL(_SaveVariables, kCpu, SaveV2Kernel);

}  // namespace
}  // namespace millrace
