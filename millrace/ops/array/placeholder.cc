// Placeholder and its variants: values that a step must feed.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Runs only if the step did not feed it.
class PlaceholderKernel : public Kernel {
 public:
  explicit PlaceholderKernel(KernelInit& init) { init.Attr("shape", &shape_); }
  Status Compute(KernelContext& ctx) override {
    return InvalidArgument("You must feed a value for placeholder tensor '", ctx.node().name(), "' with dtype ",
                           ctx.output_type(0), shape_.known_rank() ? " and shape " + shape_.ToString() : "");
  }

 private:
  PartialShape shape_;
};

// The default may have any shape compatible with the declared one.
Status PlaceholderWithDefaultShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape declared, c.Attr<PartialShape>("shape"));
  MR_RETURN_IF_ERROR(declared.MergeWith(c.input(0)).status());
  c.set_output(0, declared);
  return absl::OkStatus();
}

class PlaceholderWithDefaultKernel : public Kernel {
 public:
  explicit PlaceholderWithDefaultKernel(KernelInit& init) { init.Attr("shape", &shape_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& value = ctx.input(0);
    if (!shape_.IsCompatibleWith(value.shape())) {
      return InvalidArgument("the default of shape ", value.shape().ToString(), " does not fit the declared shape ",
                             shape_.ToString());
    }
    ctx.SetOutput(0, value);
    return absl::OkStatus();
  }

 private:
  PartialShape shape_;
};

Status PassGradient(GradientContext& c) {
  c.set_input_grad(0, c.raw_grad(0));
  return absl::OkStatus();
}

MILLRACE_OP(Placeholder)
    .Output("output: dtype")
    .Attr("dtype: type")
    .Attr("shape: shape = { unknown_rank: true }")
    .Shape(AttrShape)
    .NotDifferentiable()
    .Summary("A value that must be fed.");
MILLRACE_KERNEL(Placeholder, kCpu, PlaceholderKernel);
MILLRACE_KERNEL(Placeholder, kCuda, PlaceholderKernel);
MILLRACE_HOST_MEMORY(Placeholder, "GPU", "output");  // what is fed is the caller's

MILLRACE_OP(PlaceholderV2)
    .Output("output: dtype")
    .Attr("dtype: type")
    .Attr("shape: shape")
    .Shape(AttrShape)
    .NotDifferentiable()
    .Summary("A value that must be fed.");
MILLRACE_KERNEL(PlaceholderV2, kCpu, PlaceholderKernel);
MILLRACE_KERNEL(PlaceholderV2, kCuda, PlaceholderKernel);
MILLRACE_HOST_MEMORY(PlaceholderV2, "GPU", "output");  // what is fed is the caller's

MILLRACE_OP(PlaceholderWithDefault)
    .Input("input: dtype")
    .Output("output: dtype")
    .Attr("dtype: type")
    .Attr("shape: shape")
    .Shape(PlaceholderWithDefaultShape)
    .Gradient(PassGradient)
    .Summary("A value that may be fed, with a default.");
MILLRACE_KERNEL(PlaceholderWithDefault, kCpu, PlaceholderWithDefaultKernel);
MILLRACE_KERNEL(PlaceholderWithDefault, kCuda, PlaceholderWithDefaultKernel);
MILLRACE_HOST_KERNEL(PlaceholderWithDefault, kCuda, "dtype", DType::kInt32);

}  // namespace
}  // namespace millrace
