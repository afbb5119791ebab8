// SummaryWriter, CreateSummaryFileWriter, FlushSummaryWriter and CloseSummaryWriter.
#include "millrace/ops/summary/summary_writer.h"

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {

Status SummaryWriter::Write(pb::Event event) {
  MR_RETURN_IF_ERROR(events_->Write(std::move(event)));
  {
    MutexLock lock(&mu_);
    const absl::Time now = Clock::Real()->Now();
    if (++queued_ <= max_queue_ && now - flushed_ < flush_interval_) return absl::OkStatus();
  }
  return Flush();
}

Status SummaryWriter::Flush() {
  {
    MutexLock lock(&mu_);
    queued_ = 0;
    flushed_ = Clock::Real()->Now();
  }
  return events_->Flush();
}

namespace {

// Only returns a handle; CreateSummaryFileWriter creates the writer.
class SummaryWriterKernel : public Kernel {
 public:
  explicit SummaryWriterKernel(KernelInit& init) {
    StatusOr<ResourceName> where = ResourceName::Of(init.node());
    if (!where.ok()) {
      init.Fail(where.status());
      return;
    }
    where_ = *std::move(where);
  }
  Status Compute(KernelContext& ctx) override {
    ResourceHandle handle;
    handle.device = ctx.device()->name();
    handle.container = where_.container;
    handle.name = where_.name;
    handle.type_name = SummaryWriter::kTypeName;
    ctx.SetOutput(0, MakeHandleTensor(DType::kResource, std::move(handle)));
    return absl::OkStatus();
  }

 private:
  ResourceName where_;
};

StatusOr<const ResourceHandle*> WriterHandle(const KernelContext& ctx) {
  if (ctx.input(0).num_elements() != 1) {
    return InvalidArgument("the writer must be a scalar, but has shape ", ctx.input(0).shape().ToString());
  }
  if (ctx.resources() == nullptr) return Internal("the step has no resource manager");
  return ctx.input(0).data<ResourceHandle>();
}

// A no-op if the writer exists.
class CreateSummaryFileWriterKernel : public FileKernel {
 public:
  explicit CreateSummaryFileWriterKernel(KernelInit&) {}
  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, WriterHandle(ctx));
    MR_ASSIGN_OR_RETURN(const std::string* directory, TextInput(ctx, 1, "logdir"));
    MR_ASSIGN_OR_RETURN(const int64_t max_queue, ScalarInput(ctx, 2, "max_queue"));
    MR_ASSIGN_OR_RETURN(const int64_t flush_millis, ScalarInput(ctx, 3, "flush_millis"));
    MR_ASSIGN_OR_RETURN(const std::string* suffix, TextInput(ctx, 4, "filename_suffix"));
    ResourceManager* const resources = ctx.resources();
    if (resources->Lookup<SummaryWriter>(handle->container, handle->name).ok()) return absl::OkStatus();
    if (ctx.step().files == nullptr) return Internal("the step has no files");
    // Creates the file without holding the manager's lock.
    MR_ASSIGN_OR_RETURN(std::unique_ptr<EventWriter> events,
                        EventWriter::Create(*directory, {.files = ctx.step().files, .suffix = *suffix}));
    RefPtr<SummaryWriter> writer =
        MakeRef<SummaryWriter>(std::move(events), max_queue, absl::Milliseconds(flush_millis));
    const UpdateOrigin origin = UpdateOrigin::Of(ctx);
    return resources->Update(origin, [&] {
      return resources
          ->LookupOrCreate<SummaryWriter>(handle->container, handle->name,
                                          [&]() -> StatusOr<RefPtr<SummaryWriter>> { return writer; })
          .status();
    });
  }
};

class FlushSummaryWriterKernel : public FileKernel {
 public:
  explicit FlushSummaryWriterKernel(KernelInit&) {}
  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(const RefPtr<SummaryWriter> writer, ctx.resource<SummaryWriter>(0));
    return writer->Flush();
  }
};

class CloseSummaryWriterKernel : public FileKernel {
 public:
  explicit CloseSummaryWriterKernel(KernelInit&) {}
  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, WriterHandle(ctx));
    MR_ASSIGN_OR_RETURN(const RefPtr<SummaryWriter> writer, ctx.resource<SummaryWriter>(0));
    const UpdateOrigin origin = UpdateOrigin::Of(ctx);
    MR_RETURN_IF_ERROR(
        ctx.resources()->Update(origin, [&] { return ctx.resources()->Delete(handle->container, handle->name); }));
    return writer->Close();
  }
};

MILLRACE_OP(SummaryWriter)
    .Summary("A handle of an event file writer.")
    .Output("writer: resource")
    .Attr("shared_name: string = ''")
    .Attr("container: string = ''")
    .Stateful()
    .Shape(ScalarShape);
MILLRACE_OP(CreateSummaryFileWriter)
    .Summary("Creates an event file unless the writer has one.")
    .Input("writer: resource")
    .Input("logdir: string")
    .Input("max_queue: int32")
    .Input("flush_millis: int32")
    .Input("filename_suffix: string")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(FlushSummaryWriter)
    .Summary("Flushes pending events to the event file.")
    .Input("writer: resource")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(CloseSummaryWriter).Summary("Closes the event file.").Input("writer: resource").Stateful().Shape(NoOutputs);
MILLRACE_KERNEL(SummaryWriter, kCpu, SummaryWriterKernel);
MILLRACE_KERNEL(CreateSummaryFileWriter, kCpu, CreateSummaryFileWriterKernel);
MILLRACE_KERNEL(FlushSummaryWriter, kCpu, FlushSummaryWriterKernel);
MILLRACE_KERNEL(CloseSummaryWriter, kCpu, CloseSummaryWriterKernel);

}  // namespace
}  // namespace millrace
