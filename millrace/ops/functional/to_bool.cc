#include "millrace/ops/functional/to_bool.h"

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {

StatusOr<bool> ToBool(const Tensor& t) {
  if (t.rank() != 0) return t.num_elements() > 0;
  switch (t.dtype()) {
    case DType::kFloat:
      return t.scalar<float>() != 0;
    case DType::kDouble:
      return t.scalar<double>() != 0;
    case DType::kInt32:
      return t.scalar<int32_t>() != 0;
    case DType::kUInt8:
      return t.scalar<uint8_t>() != 0;
    case DType::kInt16:
      return t.scalar<int16_t>() != 0;
    case DType::kInt8:
      return t.scalar<int8_t>() != 0;
    case DType::kInt64:
      return t.scalar<int64_t>() != 0;
    case DType::kBool:
      return t.scalar<bool>();
    case DType::kString:
      return !t.scalar<std::string>().empty();
    default:
      return InvalidArgument("a scalar of type ", DTypeName(t.dtype()), " cannot be taken as true or false");
  }
}

namespace {

class ToBoolKernel : public Kernel {
 public:
  explicit ToBoolKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const bool truth, ToBool(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<bool>() = truth;
    return absl::OkStatus();
  }
};

MILLRACE_OP(ToBool)
    .Input("input: T")
    .Output("output: bool")
    .Attr("T: type")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The truth value of a tensor: a non-zero number, a non-empty string, a non-empty tensor.");

MILLRACE_KERNEL(ToBool, kCpu, ToBoolKernel);

}  // namespace
}  // namespace millrace
