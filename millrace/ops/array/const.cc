// Const: a tensor that is part of the graph.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// From the message's shape alone: the elements are not decoded here.
Status ConstShape(ShapeContext& c) {
  const pb::AttrValue* value = c.node().FindAttr("value");
  if (value == nullptr || !value->has_tensor()) {
    return InvalidArgument("Const needs a tensor as its attr 'value'");
  }
  MR_ASSIGN_OR_RETURN(Shape shape, Shape::FromProto(value->tensor().tensor_shape()));
  c.set_output(0, shape);
  return absl::OkStatus();
}

class ConstKernel : public Kernel {
 public:
  explicit ConstKernel(KernelInit& init) {
    init.Attr("value", &value_);
    if (init.status().ok() && value_.dtype() != init.output_type(0)) {
      init.Fail(InvalidArgument("Const of type ", init.output_type(0), " has a value of type ", value_.dtype()));
    }
  }
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, value_);
    return absl::OkStatus();
  }

 private:
  Tensor value_;
};

MILLRACE_KERNEL(Const, kCpu, ConstKernel);
// They are mostly shapes, axes and sizes that the host reads.
MILLRACE_HOST_KERNEL(Const, kCuda, "dtype", DType::kInt32);
MILLRACE_HOST_KERNEL(Const, kCuda, "dtype", DType::kString);

KnownInts ConstInts(IntsContext& c) { return c.Constant(); }

MILLRACE_OP(Const)
    .Output("output: dtype")
    .Attr("value: tensor")
    .Attr("dtype: type")
    .Shape(ConstShape)
    .NotDifferentiable()
    .Ints(ConstInts)
    .Summary("A constant tensor.");

}  // namespace
}  // namespace millrace
