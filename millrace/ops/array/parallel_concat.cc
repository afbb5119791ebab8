// ParallelConcat: concatenates tensors of one row each.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

class ParallelConcatKernel : public Kernel {
 public:
  explicit ParallelConcatKernel(KernelInit& init) {}

  Status Compute(KernelContext& ctx) override {
    Shape shape = ctx.input(0).shape();
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (ctx.input(i).rank() < 1 || ctx.input(i).dim(0) != 1) {
        return InvalidArgument("the first dimension of value ", i, " must be 1, but its shape is ",
                               ctx.input(i).shape().ToString());
      }
      if (ctx.input(i).shape() != shape) {
        return InvalidArgument("all values must have the shape ", shape.ToString(), ", but value ", i, " has ",
                               ctx.input(i).shape().ToString());
      }
    }
    shape.set_dim(0, ctx.num_inputs());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const bool known = DispatchMove(out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = out->raw<T>();
      for (int i = 0; i < ctx.num_inputs(); ++i)
        to = std::copy_n(ctx.input(i).raw<T>(), ctx.input(i).num_elements(), to);
    });
    return known ? absl::OkStatus() : Unimplemented("ParallelConcat does not take ", DTypeName(out->dtype()));
  }
};

Status ParallelConcatShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape shape, c.Attr<PartialShape>("shape"));
  if (!shape.IsFullyDefined()) return InvalidArgument("shape attr must be fully defined.");
  if (shape.rank() > 0 && shape.dim(0) != c.num_inputs()) {
    return InvalidArgument("the shape's first dimension must be the number of values, not ", shape.dim(0));
  }
  c.set_output(0, shape);
  return absl::OkStatus();
}

MILLRACE_OP(ParallelConcat)
    .Input("values: N * T")
    .Output("output: T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("shape: shape")
    .Shape(ParallelConcatShape)
    .NotDifferentiable()
    .Summary("Concatenates tensors of one row each along the first dimension.");

MILLRACE_KERNEL(ParallelConcat, kCpu, ParallelConcatKernel);

}  // namespace
}  // namespace millrace
