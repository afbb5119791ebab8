// Reading and writing one element of a TensorArray: the hot path of loops.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/data_flow/tensor_array.h"
#include "millrace/ops/data_flow/tensor_array_gradient.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class WriteKernel : public Kernel {
 public:
  explicit WriteKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(TensorArray* const array, TensorArrayInput(ctx));
    MR_ASSIGN_OR_RETURN(const int64_t index, TensorArrayIndex(ctx.input(1)));
    MR_RETURN_IF_ERROR(array->Write(index, ctx.input(2)));
    ctx.SetOutput(0, ctx.input(3));
    return absl::OkStatus();
  }
};

class ReadKernel : public Kernel {
 public:
  explicit ReadKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(TensorArray* const array, TensorArrayInput(ctx));
    MR_ASSIGN_OR_RETURN(const int64_t index, TensorArrayIndex(ctx.input(1)));
    if (array->dtype() != ctx.output_type(0)) {
      return InvalidArgument("TensorArray dtype is ", array->dtype(), " but Op requested dtype ", ctx.output_type(0),
                             ".");
    }
    StatusOr<Tensor> value = array->Read(index, ctx.allocator());
    if (!value.ok()) return value.status();
    ctx.SetOutput(0, *std::move(value));
    return absl::OkStatus();
  }
};

Status ReadShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, ElementShapeOf(c));
  return absl::OkStatus();
}

Status WriteShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  MR_RETURN_IF_ERROR(ElementShapeOf(c).MergeWith(c.input(2)).status());
  return ScalarShape(c);
}

// The gradient of a write is a read from the gradient array.
Status WriteGradient(GradientContext& c) {
  const Endpoint flow = c.grad(0);
  const GradientArray array = MakeGradientArray(c, c.input(0), flow);
  c.set_input_grad(2, c.Op("TensorArrayRead" + array.version, {array.handle, c.input(1), array.flow},
                           {{"dtype", BaseType(c.input(2).dtype())}}));
  c.set_input_grad(3, flow);
  return c.status();
}

Status ReadGradient(GradientContext& c) {
  const GradientArray array = MakeGradientArray(c, c.input(0), c.input(2));
  c.set_input_grad(2, c.Op("TensorArrayWrite" + array.version, {array.handle, c.input(1), c.grad(0), array.flow}));
  return c.status();
}

#define MR_ARRAY_WRITE(name, handle) \
  MILLRACE_OP(name)                  \
      .Input("handle: " handle)      \
      .Input("index: int32")         \
      .Input("value: T")             \
      .Input("flow_in: float")       \
      .Output("flow_out: float")     \
      .Attr("T: type")               \
      .Shape(WriteShape)             \
      .Gradient(WriteGradient)       \
      .Summary("Writes an element of a TensorArray.")
MR_ARRAY_WRITE(TensorArrayWrite, "Ref(string)");
MR_ARRAY_WRITE(TensorArrayWriteV2, "string");
MR_ARRAY_WRITE(TensorArrayWriteV3, "resource").Stateful();

#define MR_ARRAY_READ(name, handle) \
  MILLRACE_OP(name)                 \
      .Input("handle: " handle)     \
      .Input("index: int32")        \
      .Input("flow_in: float")      \
      .Output("value: dtype")       \
      .Attr("dtype: type")          \
      .Shape(ReadShape)             \
      .Gradient(ReadGradient)       \
      .Summary("Reads an element of a TensorArray.")
MR_ARRAY_READ(TensorArrayRead, "Ref(string)");
MR_ARRAY_READ(TensorArrayReadV2, "string");
MR_ARRAY_READ(TensorArrayReadV3, "resource").Stateful();

MILLRACE_KERNEL(TensorArrayWrite, kCpu, WriteKernel);
MILLRACE_KERNEL(TensorArrayWriteV2, kCpu, WriteKernel);
MILLRACE_KERNEL(TensorArrayWriteV3, kCpu, WriteKernel);
MILLRACE_KERNEL(TensorArrayRead, kCpu, ReadKernel);
MILLRACE_KERNEL(TensorArrayReadV2, kCpu, ReadKernel);
MILLRACE_KERNEL(TensorArrayReadV3, kCpu, ReadKernel);

}  // namespace
}  // namespace millrace
