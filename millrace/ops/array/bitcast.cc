// Bitcast: the same bytes seen as another type.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class BitcastKernel : public Kernel {
 public:
  explicit BitcastKernel(KernelInit& init) : from_(SizeOf(init.input_type(0))), to_(SizeOf(init.output_type(0))) {
    if (from_ == 0) FailDType(init, init.input_type(0));
    if (to_ == 0) FailDType(init, init.output_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    Shape shape = input.shape();
    if (from_ > to_) {
      shape.AddDim(static_cast<int64_t>(from_ / to_));
    } else if (from_ < to_) {
      const int64_t ratio = static_cast<int64_t>(to_ / from_);
      if (shape.rank() == 0 || shape.dim(shape.rank() - 1) != ratio) {
        return InvalidArgument("Cannot bitcast from ", input.dtype(), " to ", ctx.output_type(0), ": shape ",
                               shape.ToString(), " does not end in ", ratio);
      }
      shape.RemoveDim(shape.rank() - 1);
    }
    ctx.SetOutput(0, input.ViewAs(ctx.output_type(0), std::move(shape)));
    return absl::OkStatus();
  }

 private:
  const size_t from_;
  const size_t to_;
};

Status BitcastShape(ShapeContext& c) {
  const size_t from = SizeOf(c.node().input_type(0)), to = SizeOf(c.node().output_type(0));
  PartialShape out = c.input(0);
  if (from == 0 || to == 0 || !out.known_rank()) {
    return absl::OkStatus();
  }
  if (from > to) {
    out.AddDim(static_cast<int64_t>(from / to));
  } else if (from < to) {
    const int64_t ratio = static_cast<int64_t>(to / from);
    const int last = out.rank() - 1;
    if (last < 0 || (out.dim(last) >= 0 && out.dim(last) != ratio)) {
      return InvalidArgument("Cannot bitcast: shape ", out.ToString(), " does not end in ", ratio);
    }
    out = PartialShape(out.dims().first(last));
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

MILLRACE_OP(Bitcast)
    .Input("input: T")
    .Output("output: type")
    .Attr("T: numbertype")
    .Attr("type: numbertype")
    .Shape(BitcastShape)
    .NotDifferentiable()
    .Summary("Reinterprets the bytes of a tensor as another type.");
MILLRACE_KERNEL(Bitcast, kCpu, BitcastKernel);

}  // namespace
}  // namespace millrace
