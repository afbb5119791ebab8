// TensorSummary and TensorSummaryV2.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/summary/summary_output.h"
#include "millrace/ops/summary/summary_values.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace {
void SetSummaryTensor(const Tensor& tensor, pb::Summary::Value* value) {
  pb::TensorProto* proto = value->mutable_tensor();
  if (tensor.dtype() != DType::kString) return TensorToProto(tensor, proto);
  proto->set_dtype(pb::DT_STRING);
  tensor.shape().ToProto(proto->mutable_tensor_shape());
  for (const std::string& text : tensor.flat<std::string>()) proto->add_string_val(text);
}

namespace {

void CheckType(KernelInit& init, DType type) {
  if (!IsPlain(type) && type != DType::kString) FailDType(init, type);
}

class TensorSummaryKernel : public Kernel {
 public:
  explicit TensorSummaryKernel(KernelInit& init) { CheckType(init, init.input_type(0)); }
  Status Compute(KernelContext& ctx) override {
    pb::Summary summary;
    pb::Summary::Value* value = summary.add_value();
    value->set_node_name(ctx.node().name());
    SetSummaryTensor(ctx.input(0), value);
    return SetSummary(ctx, summary);
  }
};

class TensorSummaryV2Kernel : public Kernel {
 public:
  explicit TensorSummaryV2Kernel(KernelInit& init) { CheckType(init, init.input_type(1)); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& metadata = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const std::string* tag, TagInput(ctx, 0));
    if (metadata.rank() != 0) {
      return InvalidArgument("serialized_summary_metadata must be scalar, but has shape ", metadata.shape().ToString());
    }
    pb::Summary summary;
    pb::Summary::Value* value = summary.add_value();
    value->set_tag(*tag);
    SetSummaryTensor(ctx.input(1), value);
    if (!value->mutable_metadata()->ParseFromString(metadata.scalar<std::string>())) {
      return InvalidArgument("serialized_summary_metadata is not a SummaryMetadata");
    }
    return SetSummary(ctx, summary);
  }
};

MILLRACE_OP(TensorSummary)
    .Input("tensor: T")
    .Output("summary: string")
    .Attr("T: type")
    .Attr("description: string = ''")
    .Attr("labels: list(string) = []")
    .Attr("display_name: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A Summary with a tensor under the node's name.");
MILLRACE_OP(TensorSummaryV2)
    .Input("tag: string")
    .Input("tensor: T")
    .Input("serialized_summary_metadata: string")
    .Output("summary: string")
    .Attr("T: type")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A Summary with a tensor and plugin metadata.");
MILLRACE_KERNEL(TensorSummary, kCpu, TensorSummaryKernel);
MILLRACE_KERNEL(TensorSummaryV2, kCpu, TensorSummaryV2Kernel);

}  // namespace
}  // namespace millrace
