// WriteScalarSummary and related ops: each writes one event to the file of a SummaryWriter.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/summary/summary_values.h"
#include "millrace/ops/summary/summary_writer.h"
#include "millrace/proto/graph.pb.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Inputs 0 and 1 are the writer and the step; the subclass fills the event.
class WriteKernel : public FileKernel {
 public:
  explicit WriteKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status ComputeFiles(KernelContext& ctx) const final {
    MR_ASSIGN_OR_RETURN(const RefPtr<SummaryWriter> writer, ctx.resource<SummaryWriter>(0));
    MR_ASSIGN_OR_RETURN(const int64_t step, ScalarInput(ctx, 1, "step"));
    pb::Event event;
    event.set_step(step);
    MR_RETURN_IF_ERROR(Fill(ctx, &event));
    return writer->Write(std::move(event));
  }

 protected:
  virtual Status Fill(const KernelContext& ctx, pb::Event* event) const = 0;
  static Status SetSummary(const pb::Summary& summary, pb::Event* event) {
    if (summary.ByteSizeLong() > INT32_MAX || !summary.SerializeToString(event->mutable_summary())) {
      return InvalidArgument("the summary is too large");
    }
    return absl::OkStatus();
  }
};

class WriteScalarSummaryKernel : public WriteKernel {
 public:
  using WriteKernel::WriteKernel;
  Status Fill(const KernelContext& ctx, pb::Event* event) const override {
    MR_ASSIGN_OR_RETURN(const std::string* tag, TextInput(ctx, 2, "tag"));
    const Tensor& number = ctx.input(3);
    if (number.num_elements() < 1) return InvalidArgument("value has no element");
    pb::Summary summary;
    pb::Summary::Value* value = summary.add_value();
    value->set_tag(*tag);
    DispatchType(RealTypes(), number.dtype(), [&](auto type) {
      using T = typename decltype(type)::type;
      value->set_simple_value(static_cast<float>(number.data<T>()[0]));
    });
    return SetSummary(summary, event);
  }
};

class WriteHistogramSummaryKernel : public WriteKernel {
 public:
  using WriteKernel::WriteKernel;
  Status Fill(const KernelContext& ctx, pb::Event* event) const override {
    MR_ASSIGN_OR_RETURN(const std::string* tag, TextInput(ctx, 2, "tag"));
    pb::Summary summary;
    MR_RETURN_IF_ERROR(AddHistogram(*tag, ctx.input(3), *tag, &summary));
    return SetSummary(summary, event);
  }
};

class WriteImageSummaryKernel : public WriteKernel {
 public:
  explicit WriteImageSummaryKernel(KernelInit& init) : WriteKernel(init) { init.Attr("max_images", &max_images_); }
  Status Fill(const KernelContext& ctx, pb::Event* event) const override {
    MR_ASSIGN_OR_RETURN(const std::string* tag, TextInput(ctx, 2, "tag"));
    pb::Summary summary;
    MR_RETURN_IF_ERROR(AddImages(*tag, ctx.input(3), max_images_, ctx.input(4).flat<uint8_t>(), &summary));
    return SetSummary(summary, event);
  }

 private:
  int64_t max_images_ = 3;
};

class WriteAudioSummaryKernel : public WriteKernel {
 public:
  explicit WriteAudioSummaryKernel(KernelInit& init) : WriteKernel(init) { init.Attr("max_outputs", &max_outputs_); }
  Status Fill(const KernelContext& ctx, pb::Event* event) const override {
    MR_ASSIGN_OR_RETURN(const std::string* tag, TextInput(ctx, 2, "tag"));
    if (ctx.input(4).num_elements() != 1) return InvalidArgument("sample_rate must be a scalar");
    pb::Summary summary;
    MR_RETURN_IF_ERROR(AddSounds(*tag, ctx.input(3), ctx.input(4).scalar<float>(), max_outputs_, &summary));
    return SetSummary(summary, event);
  }

 private:
  int64_t max_outputs_ = 3;
};

class WriteSummaryKernel : public WriteKernel {
 public:
  explicit WriteSummaryKernel(KernelInit& init) : WriteKernel(init) {
    const DType type = init.input_type(2);
    if (!IsPlain(type) && type != DType::kString) FailDType(init, type);
  }
  Status Fill(const KernelContext& ctx, pb::Event* event) const override {
    MR_ASSIGN_OR_RETURN(const std::string* tag, TextInput(ctx, 3, "tag"));
    MR_ASSIGN_OR_RETURN(const std::string* metadata, TextInput(ctx, 4, "summary_metadata"));
    pb::Summary summary;
    pb::Summary::Value* value = summary.add_value();
    value->set_tag(*tag);
    SetSummaryTensor(ctx.input(2), value);
    if (!metadata->empty() && !value->mutable_metadata()->ParseFromString(*metadata)) {
      return InvalidArgument("summary_metadata is not a SummaryMetadata");
    }
    return SetSummary(summary, event);
  }
};

class WriteRawProtoSummaryKernel : public WriteKernel {
 public:
  using WriteKernel::WriteKernel;
  Status Fill(const KernelContext& ctx, pb::Event* event) const override {
    pb::Summary all;
    const auto parts = ctx.input(2).flat<std::string>();
    for (size_t i = 0; i < parts.size(); ++i) {
      pb::Summary part;
      if (!part.ParseFromString(parts[i])) {
        return DataLoss("Bad tf.compat.v1.Summary binary proto tensor string at index ", i);
      }
      all.MergeFrom(part);
    }
    return SetSummary(all, event);
  }
};

class WriteGraphSummaryKernel : public WriteKernel {
 public:
  using WriteKernel::WriteKernel;
  Status Fill(const KernelContext& ctx, pb::Event* event) const override {
    MR_ASSIGN_OR_RETURN(const std::string* bytes, TextInput(ctx, 2, "tensor"));
    pb::GraphDef graph;
    if (!graph.ParseFromString(*bytes)) return DataLoss("Bad tf.GraphDef binary proto tensor string");
    event->set_graph_def(*bytes);
    return absl::OkStatus();
  }
};

class ImportEventKernel : public FileKernel {
 public:
  explicit ImportEventKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(const RefPtr<SummaryWriter> writer, ctx.resource<SummaryWriter>(0));
    MR_ASSIGN_OR_RETURN(const std::string* bytes, TextInput(ctx, 1, "event"));
    pb::Event event;
    if (!event.ParseFromString(*bytes)) return DataLoss("Bad tf.Event binary proto tensor string");
    return writer->Write(std::move(event));
  }
};

MILLRACE_OP(WriteSummary)
    .Summary("Writes a tensor under a tag.")
    .Input("writer: resource")
    .Input("step: int64")
    .Input("tensor: T")
    .Input("tag: string")
    .Input("summary_metadata: string")
    .Attr("T: type")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(WriteScalarSummary)
    .Summary("Writes a number under a tag.")
    .Input("writer: resource")
    .Input("step: int64")
    .Input("tag: string")
    .Input("value: T")
    .Attr("T: realnumbertype")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(WriteHistogramSummary)
    .Summary("Writes a histogram of the values.")
    .Input("writer: resource")
    .Input("step: int64")
    .Input("tag: string")
    .Input("values: T")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, bool} = DT_FLOAT")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(WriteImageSummary)
    .Summary("Writes images as PNGs.")
    .Input("writer: resource")
    .Input("step: int64")
    .Input("tag: string")
    .Input("tensor: T")
    .Input("bad_color: uint8")
    .Attr("max_images: int >= 1 = 3")
    .Attr("T: {uint8, double, float, half} = DT_FLOAT")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(WriteAudioSummary)
    .Summary("Writes audio as WAV.")
    .Input("writer: resource")
    .Input("step: int64")
    .Input("tag: string")
    .Input("tensor: float")
    .Input("sample_rate: float")
    .Attr("max_outputs: int >= 1 = 3")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(WriteRawProtoSummary)
    .Summary("Writes Summary messages.")
    .Input("writer: resource")
    .Input("step: int64")
    .Input("tensor: string")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(WriteGraphSummary)
    .Summary("Writes a graph.")
    .Input("writer: resource")
    .Input("step: int64")
    .Input("tensor: string")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_OP(ImportEvent)
    .Summary("Writes a whole Event message.")
    .Input("writer: resource")
    .Input("event: string")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_KERNEL(WriteSummary, kCpu, WriteSummaryKernel);
MILLRACE_KERNEL(WriteScalarSummary, kCpu, WriteScalarSummaryKernel);
MILLRACE_KERNEL(WriteHistogramSummary, kCpu, WriteHistogramSummaryKernel);
MILLRACE_KERNEL(WriteImageSummary, kCpu, WriteImageSummaryKernel);
MILLRACE_KERNEL(WriteAudioSummary, kCpu, WriteAudioSummaryKernel);
MILLRACE_KERNEL(WriteRawProtoSummary, kCpu, WriteRawProtoSummaryKernel);
MILLRACE_KERNEL(WriteGraphSummary, kCpu, WriteGraphSummaryKernel);
MILLRACE_KERNEL(ImportEvent, kCpu, ImportEventKernel);

}  // namespace
}  // namespace millrace
