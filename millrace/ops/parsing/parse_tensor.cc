// ParseTensor and SerializeTensor: tensors as the bytes of TensorProtos.
#include "absl/strings/escaping.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace {
namespace {

class SerializeTensorKernel : public Kernel {
 public:
  explicit SerializeTensorKernel(KernelInit& init) {
    const DType type = init.input_type(0);
    if (!IsPlain(type) && type != DType::kString && type != DType::kVariant) FailDType(init, type);
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& tensor = ctx.input(0);
    pb::TensorProto proto;
    if (tensor.dtype() == DType::kString) {
      proto.set_dtype(pb::DT_STRING);
      tensor.shape().ToProto(proto.mutable_tensor_shape());
      for (const std::string& text : tensor.flat<std::string>()) proto.add_string_val(text);
    } else {
      TensorToProto(tensor, &proto);
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    if (proto.ByteSizeLong() > INT32_MAX || !proto.SerializeToString(&out->scalar<std::string>())) {
      return InvalidArgument("a tensor of shape ", tensor.shape().ToString(), " is too large for a TensorProto");
    }
    return absl::OkStatus();
  }
};

class ParseTensorKernel : public Kernel {
 public:
  explicit ParseTensorKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (input.rank() != 0) {
      return InvalidArgument("Expected `serialized` to be a scalar, got shape: ", input.shape().ToString());
    }
    const std::string& bytes = input.scalar<std::string>();
    pb::TensorProto proto;
    if (!proto.ParseFromString(bytes)) {
      return InvalidArgument("Could not parse `serialized` as TensorProto, base64: ",
                             absl::Base64Escape(absl::string_view(bytes).substr(0, 256)));
    }
    StatusOr<Tensor> tensor = TensorFromProto(proto, ctx.allocator());
    if (!tensor.ok()) return InvalidArgument("Cannot parse tensor from proto: ", tensor.status().message());
    if (tensor->dtype() != ctx.output_type(0)) {
      return InvalidArgument("Type mismatch between parsed tensor (", tensor->dtype(), ") and dtype (",
                             ctx.output_type(0), ")");
    }
    ctx.SetOutput(0, *std::move(tensor));
    return absl::OkStatus();
  }
};

MILLRACE_OP(SerializeTensor)
    .Input("tensor: T")
    .Output("serialized: string")
    .Attr("T: type")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Serializes a tensor as a TensorProto.");
MILLRACE_OP(ParseTensor)
    .Input("serialized: string")
    .Output("output: out_type")
    .Attr("out_type: type")
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Summary("Parses a serialized TensorProto.");
MILLRACE_KERNEL(SerializeTensor, kCpu, SerializeTensorKernel);
MILLRACE_KERNEL(ParseTensor, kCpu, ParseTensorKernel);

}  // namespace
}  // namespace millrace
